#include "worker/rank_kv.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "kvtransfer/checksum.h"

namespace sluice::worker {
namespace {

// Between processes, so not private. Bounds what a lost wake costs, and how late a loss is noticed.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t value) {
  const timespec most = {.tv_sec = 0, .tv_nsec = 50'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &most, nullptr, 0);
}
void Raise(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

RankKv::RankKv(const kernels::KvLayout& whole, std::span<RankKvBox> boxes, std::vector<Heads> heads,
               kernels::DeviceKv* own, const kernels::Collective* ranks, absl::Duration timeout)
    : whole_(whole), boxes_(boxes), heads_(std::move(heads)), own_(own), ranks_(ranks), timeout_(timeout) {
  CHECK_EQ(boxes_.size() + 1, heads_.size());
}

// To gather, every head once, from the first rank that has it; to scatter, to all that do.
std::vector<RankKv::Part> RankKv::PartsOf(const kernels::KvSlice& slice, bool all_copies) const {
  std::vector<Part> parts;
  int next = slice.head_begin;
  for (size_t rank = 0; rank < heads_.size(); ++rank) {
    const int begin = std::max(heads_[rank].begin, all_copies ? slice.head_begin : next);
    const int end = std::min(heads_[rank].end, slice.head_end);
    if (begin >= end) continue;
    parts.push_back({rank, begin, end});
    next = std::max(next, end);
  }
  return parts;
}

size_t RankKv::TileBytes(const Tile& tile, const Part& part) const {
  return size_t(tile.layer_end - tile.layer_begin) * size_t(tile.num_blocks) * 2 *
         size_t(part.head_end - part.head_begin) * whole_.head_bytes();
}

absl::Status RankKv::ForEachTile(const kernels::KvSlice& slice, const std::vector<Part>& parts,
                                 const std::function<absl::Status(const Tile&)>& run) const {
  size_t widest = 0;  // bytes of a block in a layer
  for (const Part& part : parts) widest = std::max(widest, TileBytes({0, 1, 0, 1}, part));
  const int at_once = int(std::min<size_t>(RankKvBox::kBytes / widest, RankKvBox::kBlocks));
  if (at_once == 0)
    return absl::UnimplementedError(absl::StrCat("a block of ", widest, " bytes is more than a box holds"));
  const int blocks = int(slice.blocks.size()), layers = std::max(1, at_once / std::max(blocks, 1));
  for (int layer = slice.layer_begin; layer < slice.layer_end; layer += layers) {
    for (int block = 0; block < blocks; block += at_once) {
      const absl::Status done =
          run({layer, std::min(layer + layers, slice.layer_end), block, std::min(at_once, blocks - block)});
      if (!done.ok()) return done;
    }
  }
  return absl::OkStatus();
}

void RankKv::CopyPart(const kernels::KvSlice& slice, const Tile& tile, const Part& part, std::byte* whole,
                      std::byte* packed, bool to_whole) const {
  const size_t head = whole_.head_bytes(), run = size_t(part.head_end - part.head_begin) * head;
  const size_t row = size_t(slice.head_end - slice.head_begin) * head;  // K or V of a block in the slice
  for (int layer = tile.layer_begin; layer < tile.layer_end; ++layer) {
    const size_t first = (size_t(layer - slice.layer_begin) * slice.blocks.size() + size_t(tile.first_block)) * 2;
    for (size_t plane = first; plane < first + 2 * size_t(tile.num_blocks); ++plane, packed += run) {
      std::byte* const at = whole + plane * row + size_t(part.head_begin - slice.head_begin) * head;
      if (to_whole) {
        std::memcpy(at, packed, run);
      } else {
        std::memcpy(packed, at, run);
      }
    }
  }
}

kernels::KvSlice RankKv::OwnSlice(const kernels::KvSlice& slice, const Tile& tile, const Part& part) const {
  const int first = heads_[part.rank].begin;
  return {tile.layer_begin, tile.layer_end, part.head_begin - first, part.head_end - first,
          slice.blocks.subspan(size_t(tile.first_block), size_t(tile.num_blocks))};
}

void RankKv::Ask(const kernels::KvSlice& slice, const Tile& tile, const Part& part, bool scatter) {
  RankKvBox& box = boxes_[part.rank - 1];
  const kernels::KvSlice of_rank = OwnSlice(slice, tile, part);
  box.scatter = scatter ? 1 : 0;
  box.layer_begin = of_rank.layer_begin;
  box.layer_end = of_rank.layer_end;
  box.head_begin = of_rank.head_begin;
  box.head_end = of_rank.head_end;
  box.num_blocks = int32_t(of_rank.blocks.size());
  std::copy(of_rank.blocks.begin(), of_rank.blocks.end(), box.blocks);
  Raise(box.asked);
}

absl::Status RankKv::Await(const Part& part) {
  RankKvBox& box = boxes_[part.rank - 1];
  const absl::Time end = absl::Now() + timeout_;
  for (uint32_t done = box.done; done != box.asked; done = box.done) {
    if (ranks_->lost()) return failed_ = absl::UnavailableError("a rank of this instance was lost");
    if (absl::Now() > end) {
      return failed_ = absl::DeadlineExceededError(
                 absl::StrCat("rank ", part.rank, " has not moved its KV within ", absl::FormatDuration(timeout_)));
    }
    SleepWhile(box.done, done);
  }
  if (box.code == 0) return absl::OkStatus();
  return absl::Status(absl::StatusCode(box.code), absl::StrCat("rank ", part.rank, ": ", box.message));
}

absl::StatusOr<uint64_t> RankKv::Gather(const kernels::KvSlice& slice, std::span<std::byte> out) {
  absl::MutexLock lock(&mutex_);
  if (!failed_.ok()) return failed_;
  const std::vector<Part> parts = PartsOf(slice, /*all_copies=*/false);
  const absl::Status done = ForEachTile(slice, parts, [&](const Tile& tile) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Part& part : parts) {
      if (part.rank > 0) Ask(slice, tile, part, /*scatter=*/false);
    }
    // All are waited for, whatever one says: a box has one request at a time.
    absl::Status first;
    for (const Part& part : parts) {
      std::byte* packed = nullptr;
      if (part.rank > 0) {
        first.Update(Await(part));
        packed = boxes_[part.rank - 1].data;
      } else {
        packed_.resize(std::max(packed_.size(), TileBytes(tile, part)));
        packed = packed_.data();
        first.Update(own_->Gather(OwnSlice(slice, tile, part), {packed, TileBytes(tile, part)}).status());
      }
      if (first.ok()) CopyPart(slice, tile, part, out.data(), packed, /*to_whole=*/true);
    }
    return first;
  });
  if (!done.ok()) return done;
  return kvtransfer::Checksum(out);
}

absl::StatusOr<uint64_t> RankKv::Scatter(const kernels::KvSlice& slice, std::span<const std::byte> in) {
  absl::MutexLock lock(&mutex_);
  if (!failed_.ok()) return failed_;
  const std::vector<Part> parts = PartsOf(slice, /*all_copies=*/true);
  auto* const from = const_cast<std::byte*>(in.data());  // only read
  const absl::Status done = ForEachTile(slice, parts, [&](const Tile& tile) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Part& part : parts) {
      if (part.rank == 0) continue;
      CopyPart(slice, tile, part, from, boxes_[part.rank - 1].data, /*to_whole=*/false);
      Ask(slice, tile, part, /*scatter=*/true);
    }
    absl::Status first;
    for (const Part& part : parts) {
      if (part.rank > 0) {
        first.Update(Await(part));
        continue;
      }
      packed_.resize(std::max(packed_.size(), TileBytes(tile, part)));
      CopyPart(slice, tile, part, from, packed_.data(), /*to_whole=*/false);
      first.Update(own_->Scatter(OwnSlice(slice, tile, part), {packed_.data(), TileBytes(tile, part)}).status());
    }
    return first;
  });
  if (!done.ok()) return done;
  return kvtransfer::Checksum(in);
}

RankKvServer::RankKvServer(RankKvBox* box, kernels::DeviceKv* pool, const kernels::KvLayout& layout)
    : box_(box), pool_(pool), layout_(layout), thread_([this] { Run(); }) {}

RankKvServer::~RankKvServer() {
  leaving_ = true;
  thread_.join();
}

void RankKvServer::Run() {
  while (!leaving_) {
    const uint32_t asked = box_->asked;
    if (asked == box_->done) {
      SleepWhile(box_->asked, asked);
      continue;
    }
    const absl::Status served = Serve();
    box_->code = int32_t(served.code());
    const std::string text(served.message().substr(0, sizeof(box_->message) - 1));
    std::memcpy(box_->message, text.c_str(), text.size() + 1);
    Raise(box_->done);
  }
}

absl::Status RankKvServer::Serve() {
  const kernels::KvSlice slice{box_->layer_begin, box_->layer_end, box_->head_begin, box_->head_end,
                               std::span(box_->blocks, size_t(box_->num_blocks))};
  const std::span<std::byte> data(box_->data, kernels::SliceBytes(slice, layout_));
  return box_->scatter != 0 ? pool_->Scatter(slice, data).status() : pool_->Gather(slice, data).status();
}

}  // namespace sluice::worker
