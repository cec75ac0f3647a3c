#include "engine/layer_groups.h"

#include <set>

#include "engine/engine.h"
#include "engine/testing/tiny_setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

// Position by position: the blocks in which something lies that the row at position `tokens` sees.
BlockRange Naive(const LayerGroup& group, int64_t tokens, int block_size) {
  std::set<int> blocks;
  for (int64_t p = 0; p < tokens; ++p) {
    const bool seen = group.kind == KvKind::kFull || group.kind == KvKind::kLatent ||
                      (group.kind == KvKind::kWindow && tokens - p < group.window);
    if (seen) blocks.insert(int(p / block_size));
  }
  if (blocks.empty()) return {};
  return {*blocks.begin(), *blocks.rbegin() + 1};
}

TEST(LayerGroups, NeededBlocksAreThoseThatTheNextRowSees) {
  for (const KvKind kind : {KvKind::kFull, KvKind::kWindow, KvKind::kLatent, KvKind::kState}) {
    for (const int window : {2, 3, 15, 16, 17, 18, 33, 1000}) {
      for (const int block_size : {1, 5, 16}) {
        for (int64_t tokens = 0; tokens < 70; ++tokens) {
          const LayerGroup group{.kind = kind, .window = window};
          EXPECT_EQ(NeededBlocks(group, tokens, block_size), Naive(group, tokens, block_size))
              << Name(kind) << " window " << window << " blocks of " << block_size << ", " << tokens << " tokens";
        }
      }
    }
  }
}

TEST(LayerGroups, AWindowOfOneTokenNeedsNothing) {
  EXPECT_EQ(NeededBlocks({.kind = KvKind::kWindow, .window = 1}, 32, 16).size(), 0);
}

TEST(LayerGroups, NeededBytesAddUp) {
  const std::vector<LayerGroup> groups = {{.kind = KvKind::kFull, .block_bytes = 1000},
                                          {.kind = KvKind::kWindow, .window = 17, .block_bytes = 100},
                                          {.kind = KvKind::kState, .block_bytes = 7}};
  EXPECT_EQ(NeededBytes(groups, 64, 16), 4 * 1000 + 1 * 100 + 7);
  EXPECT_EQ(NeededBytes(groups, 65, 16), 5 * 1000 + 2 * 100 + 7);
  EXPECT_EQ(NeededBytes(groups, 0, 16), 7);
}

TEST(LayerGroups, OfAModel) {
  ModelConfig config;
  config.num_layers = 3;
  config.context_length = 512;
  const kernels::KvLayout layout{3, 2, 8, 16, kernels::KvDType::kF32};
  const LayerGroup full{
      .kind = KvKind::kFull, .layers = {0, 1, 2}, .block_bytes = int64_t(layout.block_bytes_all_layers())};
  EXPECT_THAT(LayerGroupsOf(config, layout), testing::ElementsAre(full));
  EXPECT_TRUE(CheckServed({full}).ok());
  config.window = 512;
  EXPECT_THAT(LayerGroupsOf(config, layout), testing::ElementsAre(full)) << "it hides nothing";
  config.window = 128;
  const std::vector<LayerGroup> windowed = LayerGroupsOf(config, layout);
  EXPECT_EQ(windowed[0].kind, KvKind::kWindow);
  EXPECT_THAT(std::string(CheckServed(windowed).message()), HasSubstr("window attention over 128 tokens"));
  EXPECT_EQ(CheckServed({full, full}).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckServed({{.kind = KvKind::kState}}).code(), absl::StatusCode::kUnimplemented);
}

TEST(LayerGroups, AnEngineRefusesWhatItDoesNotServe) {
  for (const int window : {0, 100, 2048}) {
    const TinySetup setup = MakeTinySetup({.ffn = 320, .window = window});
    ASSERT_TRUE(setup.file && setup.backend);
    const auto engine = Engine::Create(*setup.file, *setup.backend, {.num_blocks = 40});
    if (window == 100) {
      EXPECT_EQ(engine.status().code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(engine.status().message()), HasSubstr("only full attention is served"));
    } else {
      EXPECT_TRUE(engine.ok()) << engine.status();
    }
  }
}

}  // namespace
}  // namespace sluice::engine
