#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/model/testing/naive_forward.h"
#include "engine/testing/tiny_setup.h"
#include "gtest/gtest.h"
#include "kernels/kv_layout.h"

namespace sluice::engine {
namespace {

using kernels::DType;

// Runs `tokens` as one sequence in chunks of `chunk`, with logits of every row: [tokens][vocab]. Blocks are used in
// reverse, so that a wrong table shows.
std::vector<float> RunDecoder(const TinySetup& setup, const std::vector<int32_t>& tokens, int chunk, int block_size) {
  auto decoder = Decoder::Create(*setup.file, *setup.backend,
                                 {.max_step_tokens = chunk, .max_step_seqs = chunk, .max_context = 256});
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  const int blocks = kernels::BlocksFor(int64_t(tokens.size()), block_size);
  auto kv = setup.backend->NewKvPool((*decoder)->kv_layout(block_size), blocks + 2);
  EXPECT_TRUE(kv.ok()) << kv.status();
  std::vector<int32_t> table(blocks);
  for (int i = 0; i < blocks; ++i) table[i] = blocks + 1 - i;

  const int vocab = (*decoder)->vocab();
  std::vector<float> logits(tokens.size() * vocab);
  for (int begin = 0; begin < int(tokens.size()); begin += chunk) {
    const int count = std::min(chunk, int(tokens.size()) - begin);
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const int32_t row_begin[] = {0, count}, context_len[] = {begin + count};
    kernels::StepBatch batch;
    batch.tokens = std::span(tokens).subspan(begin, count);
    batch.row_begin = row_begin;
    batch.context_len = context_len;
    batch.block_table = table;
    batch.max_blocks = blocks;
    batch.logit_rows = rows;
    const absl::Status status = (*decoder)->Forward(batch, **kv, logits.data() + size_t(begin) * vocab);
    EXPECT_TRUE(status.ok()) << status;
  }
  return logits;
}

// f32 against double: the error of a row relative to the spread of its logits.
void ExpectNaive(const TinyModelSpec& spec, int length, int chunk, int block_size) {
  SCOPED_TRACE(testing::Message() << "heads " << spec.heads << "/" << spec.kv_heads << " dim " << spec.head_dim
                                  << " length " << length << " chunk " << chunk << " block " << block_size);
  const TinySetup setup = MakeTinySetup(spec);
  ASSERT_TRUE(setup.file && setup.backend);
  const int vocab = setup.file->config().vocab;
  const std::vector<int32_t> tokens = RandomTokens(length, vocab, spec.seed + 10);
  const std::vector<std::vector<double>> expected = NaiveModel(setup.file.get()).Forward(tokens);
  const std::vector<float> got = RunDecoder(setup, tokens, chunk, block_size);
  double worst = 0;
  for (int t = 0; t < length; ++t) {
    const auto [low, high] = std::minmax_element(expected[t].begin(), expected[t].end());
    ASSERT_GT(*high - *low, 0.1) << "logits that say nothing test nothing";
    for (int id = 0; id < vocab; ++id) {
      worst = std::max(worst, std::abs(got[size_t(t) * vocab + id] - expected[t][id]) / (*high - *low));
    }
  }
  EXPECT_LT(worst, 5e-6);
  testing::Test::RecordProperty("worst", absl::StrCat(worst));
}

// What is sent elsewhere while a step runs must not change any more.
TEST(Decoder, KvOfALayerIsFinalWhenThatIsSaid) {
  const TinySetup setup = MakeTinySetup({});
  auto decoder =
      Decoder::Create(*setup.file, *setup.backend, {.max_step_tokens = 37, .max_step_seqs = 4, .max_context = 256});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const kernels::KvLayout layout = (*decoder)->kv_layout(16);
  auto kv = setup.backend->NewKvPool(layout, 3);
  ASSERT_TRUE(kv.ok()) << kv.status();
  const std::vector<int32_t> tokens = RandomTokens(37, (*decoder)->vocab(), 5), table = {2, 0, 1};
  const int32_t row_begin[] = {0, 37}, context_len[] = {37}, rows[] = {36};
  kernels::StepBatch batch;
  batch.tokens = tokens;
  batch.row_begin = row_begin;
  batch.context_len = context_len;
  batch.block_table = table;
  batch.max_blocks = 3;
  batch.logit_rows = rows;
  const auto read = [&](int layer) {
    const auto* data = static_cast<const std::byte*>((*kv)->layer_data(layer));
    return std::vector<std::byte>(data, data + 3 * layout.block_bytes());
  };
  std::vector<std::vector<std::byte>> said;
  std::vector<float> logits((*decoder)->vocab());
  const absl::Status status = (*decoder)->Forward(batch, **kv, logits.data(), nullptr, [&](int layers) {
    ASSERT_EQ(layers, int(said.size()) + 1);
    said.push_back(read(layers - 1));
  });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(int(said.size()), layout.num_layers);
  for (int layer = 0; layer < layout.num_layers; ++layer) EXPECT_EQ(said[size_t(layer)], read(layer)) << layer;
}

TEST(Decoder, AgreesWithTheNaiveForwardPass) {
  ExpectNaive({}, 37, 37, 16);
  ExpectNaive({.seed = 2}, 37, 5, 16);
  ExpectNaive({.seed = 3, .tied = true}, 20, 1, 8);
}

TEST(Decoder, OddShapes) {
  ExpectNaive({.layers = 1, .heads = 1, .kv_heads = 1, .head_dim = 32, .ffn = 32}, 9, 4, 1);
  ExpectNaive({.layers = 3, .heads = 6, .kv_heads = 2, .head_dim = 16, .ffn = 160, .seed = 5}, 33, 7, 5);
  ExpectNaive({.layers = 1, .heads = 5, .kv_heads = 5, .head_dim = 64, .hidden = 160, .ffn = 224, .seed = 6}, 18, 18, 3);
  // Heads of their own length, which do not divide the embedding.
  ExpectNaive({.layers = 2, .heads = 9, .kv_heads = 3, .head_dim = 48, .hidden = 256, .ffn = 224, .seed = 8}, 18, 7, 3);
  ExpectNaive({.layers = 2, .heads = 8, .kv_heads = 1, .head_dim = 80, .hidden = 256, .ffn = 512, .seed = 7}, 70, 64,
              16);
}

TEST(Decoder, RopeFactorsAndLongContexts) {
  ExpectNaive({.layers = 1, .heads = 3, .kv_heads = 3, .seed = 8, .rope_factors = true}, 150, 64, 16);
}

TEST(Decoder, EveryStorageType) {
  for (int type = 0; type < kernels::kNumDTypes; ++type) {
    SCOPED_TRACE(kernels::Info(DType(type)).name);
    ExpectNaive({.layers = 1, .heads = 4, .kv_heads = 2, .head_dim = 64, .ffn = 256, .types = {DType(type)}}, 11, 11,
                16);
  }
}

TEST(Decoder, RefusesLimitsThatMakeNoSense) {
  const TinySetup setup = MakeTinySetup({.layers = 1});
  ASSERT_TRUE(setup.file && setup.backend);
  EXPECT_EQ(Decoder::Create(*setup.file, *setup.backend, {.max_context = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Decoder::Create(*setup.file, *setup.backend, {.max_context = 1 << 20}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::engine
