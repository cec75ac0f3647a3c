#include "engine/layer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::engine {
namespace {

TEST(LayerGroups, FullAndLatentHoldEveryToken) {
  for (const LayerKind kind : {LayerKind::kFull, LayerKind::kLatent}) {
    const LayerGroup g{.kind = kind, .layers = {0}};
    EXPECT_EQ(HeldBlocks(g, 0, 16), (BlockRange{0, 0}));
    EXPECT_EQ(HeldBlocks(g, 16, 16), (BlockRange{0, 1}));
    EXPECT_EQ(HeldBlocks(g, 17, 16), (BlockRange{0, 2}));
  }
}

// Against the definition: token i sees j where i - j < window.
TEST(LayerGroups, AWindowHoldsWhatTheNextTokenSees) {
  for (const int window : {1, 2, 5, 16, 17, 100}) {
    const LayerGroup g{.kind = LayerKind::kWindow, .layers = {0}, .window = window};
    for (int tokens = 0; tokens < 70; ++tokens) {
      for (const int block : {1, 4, 16}) {
        int first = tokens;  // the first token that the next one sees
        while (first > 0 && tokens - (first - 1) < window) --first;
        const BlockRange held = HeldBlocks(g, tokens, block);
        EXPECT_EQ(held.end, (tokens + block - 1) / block);
        EXPECT_EQ(held.begin, std::min(first / block, held.end)) << window << ", " << tokens << ", " << block;
      }
    }
  }
}

TEST(LayerGroups, AStateHasNoBlocks) {
  EXPECT_EQ(HeldBlocks({.kind = LayerKind::kState, .layers = {0}}, 100, 16), (BlockRange{0, 0}));
}

TEST(LayerGroups, WhatAPrefixNeeds) {
  const LayerGroup full, window{.kind = LayerKind::kWindow, .layers = {}, .window = 20};
  const LayerGroup state{.kind = LayerKind::kState, .layers = {}};
  EXPECT_TRUE(CanResume(full, 64, 16, {0, 4}, false));
  EXPECT_FALSE(CanResume(full, 64, 16, {1, 4}, true)) << "the first block is gone";
  EXPECT_FALSE(CanResume(full, 64, 16, {0, 3}, true));
  EXPECT_TRUE(CanResume(window, 64, 16, {2, 4}, false)) << "tokens 45 to 63 are seen";
  EXPECT_FALSE(CanResume(window, 64, 16, {3, 4}, false));
  EXPECT_TRUE(CanResume(state, 64, 16, {}, true));
  EXPECT_FALSE(CanResume(state, 64, 16, {0, 4}, false)) << "blocks are no state";
}

TEST(LayerGroups, AModelOfToday) {
  const auto groups = LayerGroupsOf({.num_layers = 3}, 1000);
  EXPECT_EQ(groups, (std::vector<LayerGroup>{{.kind = LayerKind::kFull, .layers = {0, 1, 2}}}));
  EXPECT_TRUE(CheckSupported(groups).ok());
  const ModelConfig windowed{.num_layers = 3, .window = 64};
  EXPECT_EQ(LayerGroupsOf(windowed, 64), groups) << "no context outgrows it";
  EXPECT_EQ(LayerGroupsOf(windowed, 65)[0].kind, LayerKind::kWindow);
}

TEST(LayerGroups, OthersAreRefusedByName) {
  const absl::Status status = CheckSupported({{.kind = LayerKind::kWindow, .layers = {5, 6}, .window = 4}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("layer 5 has window attention"));
  EXPECT_FALSE(CheckSupported({{}, {}}).ok());
}

}  // namespace
}  // namespace sluice::engine
