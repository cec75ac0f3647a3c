// One pool of several ranks' pools against one that has all heads: slices of every kind, ranks with heads in common,
// tiles that a box cannot hold at once, and ranks that fail.
#include "worker/rank_kv.h"

#include <algorithm>
#include <memory>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/checksum.h"

namespace sluice::worker {
namespace {

using kernels::KvSlice;
using testing::HasSubstr;

// Blocks of some heads of the model, in host memory behind a device's interface.
class Pool final : public kernels::DeviceKv {
 public:
  Pool(kernels::KvLayout layout, int num_blocks, int heads) : layout_(layout), bytes_(size_t(num_blocks)), status() {
    layout_.num_kv_heads = heads;
    bytes_.resize(size_t(layout_.num_layers) * size_t(num_blocks) * layout_.block_bytes());
    layer_bytes_ = size_t(num_blocks) * layout_.block_bytes();
  }
  const kernels::KvLayout& layout() const { return layout_; }
  std::byte* At(int layer, int block, int is_v, int head) {
    return bytes_.data() + size_t(layer) * layer_bytes_ + layout_.offset(block, is_v, head, 0);
  }
  absl::StatusOr<uint64_t> Gather(const KvSlice& slice, std::span<std::byte> out) override {
    return Move(slice, out.data(), out.size(), true);
  }
  absl::StatusOr<uint64_t> Scatter(const KvSlice& slice, std::span<const std::byte> in) override {
    return Move(slice, const_cast<std::byte*>(in.data()), in.size(), false);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  absl::StatusOr<uint64_t> Move(const KvSlice& slice, std::byte* run, size_t bytes, bool gather) {
    if (!status.ok()) return status;
    EXPECT_EQ(bytes, kernels::SliceBytes(slice, layout_));
    const size_t plane = size_t(slice.head_end - slice.head_begin) * layout_.head_bytes();
    for (int layer = slice.layer_begin; layer < slice.layer_end; ++layer) {
      for (const int32_t block : slice.blocks) {
        for (const int is_v : {0, 1}) {
          std::byte* at = At(layer, block, is_v, slice.head_begin);
          if (gather) {
            std::copy_n(at, plane, run);
          } else {
            std::copy_n(run, plane, at);
          }
          run += plane;
        }
      }
    }
    return kvtransfer::Checksum({run - bytes, bytes});
  }

  kernels::KvLayout layout_;
  std::vector<std::byte> bytes_;
  size_t layer_bytes_ = 0;

 public:
  absl::Status status;  // not OK: of every call
};

class OneInstance final : public kernels::Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 3; }
  bool lost() const override { return is_lost; }
  absl::Status Gather(float*, int64_t, int64_t, std::span<const int64_t>, To) override { return absl::OkStatus(); }
  std::atomic<bool> is_lost = false;
};

struct Instance {
  Instance(kernels::KvLayout layout, int num_blocks, std::vector<RankKv::Heads> of_ranks, bool serve = true,
           absl::Duration timeout = absl::Seconds(30))
      : whole(layout, num_blocks, layout.num_kv_heads), heads(of_ranks), boxes(new RankKvBox[heads.size() - 1]()) {
    for (const auto& h : heads) pools.push_back(std::make_unique<Pool>(layout, num_blocks, h.end - h.begin));
    for (size_t rank = 1; serve && rank < heads.size(); ++rank) {
      servers.push_back(std::make_unique<RankKvServer>(&boxes[rank - 1], pools[rank].get(), pools[rank]->layout()));
    }
    kv = std::make_unique<RankKv>(layout, std::span(boxes.get(), heads.size() - 1), heads, pools[0].get(), &ranks,
                                  timeout);
  }

  // The same bytes in the whole's pool and in those of ranks.
  void Fill(std::mt19937& random) {
    for (std::byte& byte : whole.bytes()) byte = std::byte(random());
    const kernels::KvLayout& l = whole.layout();
    const int blocks = int(whole.bytes().size() / l.block_bytes() / size_t(l.num_layers));
    for (size_t rank = 0; rank < heads.size(); ++rank) {
      for (int layer = 0; layer < l.num_layers; ++layer) {
        for (int block = 0; block < blocks; ++block) {
          for (const int is_v : {0, 1}) {
            for (int h = heads[rank].begin; h < heads[rank].end; ++h) {
              std::copy_n(whole.At(layer, block, is_v, h), l.head_bytes(),
                          pools[rank]->At(layer, block, is_v, h - heads[rank].begin));
            }
          }
        }
      }
    }
  }

  Pool whole;
  std::vector<RankKv::Heads> heads;
  std::vector<std::unique_ptr<Pool>> pools;
  std::unique_ptr<RankKvBox[]> boxes;
  OneInstance ranks;
  std::vector<std::unique_ptr<RankKvServer>> servers;
  std::unique_ptr<RankKv> kv;
};

void CheckSlices(const kernels::KvLayout& layout, int num_blocks, const std::vector<RankKv::Heads>& heads, int rounds) {
  Instance setup(layout, num_blocks, heads);
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
    setup.Fill(random);
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
    for (int i = 0; i < num_blocks; ++i) blocks[size_t(i)] = i;
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.resize(1 + random() % size_t(num_blocks));
    const auto range = [&](int n) {
      const int begin = int(random() % size_t(n));
      return std::pair(begin, begin + 1 + int(random() % size_t(n - begin)));
    };
    const auto [layer_begin, layer_end] = range(layout.num_layers);
    const auto [head_begin, head_end] = round == 0 ? std::pair(0, layout.num_kv_heads) : range(layout.num_kv_heads);
    const KvSlice slice{layer_begin, layer_end, head_begin, head_end, blocks};
    std::vector<std::byte> want(kernels::SliceBytes(slice, layout)), got(want.size());
    const auto want_sum = setup.whole.Gather(slice, want), got_sum = setup.kv->Gather(slice, got);
    ASSERT_TRUE(got_sum.ok()) << got_sum.status();
    EXPECT_EQ(*got_sum, *want_sum);
    ASSERT_TRUE(got == want) << "round " << round;
    // New bytes to all that have the heads; what is outside the slice stays.
    for (std::byte& byte : want) byte = std::byte(random());
    ASSERT_EQ(*setup.whole.Scatter(slice, want), *setup.kv->Scatter(slice, want));
    for (size_t rank = 0; rank < heads.size(); ++rank) {
      for (int h = heads[rank].begin; h < heads[rank].end; ++h) {
        for (int layer = 0; layer < layout.num_layers; ++layer) {
          for (int block = 0; block < num_blocks; ++block) {
            for (const int is_v : {0, 1}) {
              ASSERT_TRUE(std::equal(setup.whole.At(layer, block, is_v, h),
                                     setup.whole.At(layer, block, is_v, h) + layout.head_bytes(),
                                     setup.pools[rank]->At(layer, block, is_v, h - heads[rank].begin)))
                  << "rank " << rank << ", head " << h << ", block " << block;
            }
          }
        }
      }
    }
  }
}

constexpr kernels::KvLayout kSmall{.num_layers = 3, .num_kv_heads = 3, .head_dim = 8, .block_size = 4};

TEST(RankKv, IsThePoolOfAllHeads) {
  CheckSlices(kSmall, 9, {{0, 1}, {1, 3}}, 40);
  CheckSlices(kSmall, 9, {{0, 1}, {1, 2}, {2, 3}}, 40);
  CheckSlices(kSmall, 9, {{0, 1}, {0, 1}, {1, 2}, {2, 3}}, 40);  // more ranks than heads
}

TEST(RankKv, TakesSeveralTilesOfABox) {
  // A block is 2 MiB in a layer: a box holds two of rank 0's, one of rank 1's.
  CheckSlices({.num_layers = 2, .num_kv_heads = 3, .head_dim = 1024, .block_size = 128}, 3, {{0, 1}, {1, 3}}, 2);
}

TEST(RankKv, SaysWhatABoxCannotHold) {
  const kernels::KvLayout huge{.num_layers = 1, .num_kv_heads = 2, .head_dim = 1024, .block_size = 1024};
  Instance setup(huge, 1, {{0, 1}, {1, 2}});
  const int32_t blocks[] = {0};
  std::vector<std::byte> out(huge.block_bytes());
  EXPECT_EQ(setup.kv->Gather({0, 1, 0, 2, blocks}, out).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(RankKv, AnErrorOfARankIsHeardAndPasses) {
  Instance setup(kSmall, 4, {{0, 1}, {1, 3}});
  const int32_t blocks[] = {2, 0};
  const KvSlice slice{0, 3, 0, 3, blocks};
  std::vector<std::byte> out(kernels::SliceBytes(slice, kSmall));
  setup.pools[1]->status = absl::InternalError("the GPU fell off the bus");
  const absl::Status failed = setup.kv->Gather(slice, out).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("rank 1: the GPU fell off the bus"));
  EXPECT_EQ(setup.kv->Scatter(slice, out).status(), failed);
  setup.pools[1]->status = absl::OkStatus();
  EXPECT_TRUE(setup.kv->Gather(slice, out).ok());
}

TEST(RankKv, NobodyWaitsForALostRank) {
  const int32_t blocks[] = {1};
  const KvSlice slice{0, 3, 0, 3, blocks};
  std::vector<std::byte> out(kernels::SliceBytes(slice, kSmall));
  Instance lost(kSmall, 4, {{0, 1}, {1, 3}}, /*serve=*/false);
  lost.ranks.is_lost = true;
  EXPECT_EQ(lost.kv->Gather(slice, out).status().code(), absl::StatusCode::kUnavailable);
  Instance silent(kSmall, 4, {{0, 1}, {1, 3}}, /*serve=*/false, absl::Milliseconds(100));
  const absl::Status late = silent.kv->Scatter(slice, out).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("rank 1 has not moved its KV within 100ms"));
  EXPECT_EQ(silent.kv->Gather(slice, out).status(), late) << "its box is no longer known";
}

}  // namespace
}  // namespace sluice::worker
