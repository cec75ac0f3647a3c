#include "kernels/cuda/attention/attention_plan.h"

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::kernels::cuda {
namespace {

struct Step {
  std::vector<int32_t> row_begin = {0}, context_len;
  void Add(int rows, int context) {
    row_begin.push_back(row_begin.back() + rows);
    context_len.push_back(context);
  }
  int rows() const { return row_begin.back(); }
};

struct Plan {
  AttentionPlanHeader header;
  std::vector<SpanItem> spans;
  std::vector<MergeItem> merges;
  std::vector<PrefillItem> prefills;
};

Plan Build(const Step& step, const AttentionShape& shape, const AttentionCapacity& capacity) {
  constexpr int32_t kUntouched = -77;
  std::vector<int32_t> words(capacity.words(), kUntouched);
  const size_t used = BuildAttentionPlan(step.row_begin, step.context_len, shape, capacity, words);
  Plan plan;
  std::memcpy(&plan.header, words.data(), sizeof(plan.header));
  EXPECT_EQ(size_t(plan.header.words), used);
  for (size_t i = used; i < words.size(); ++i) EXPECT_EQ(words[i], kUntouched);
  const auto copy = [&](auto& items, int at, int count) {
    EXPECT_EQ(at % 4, 0);
    items.resize(size_t(count));
    if (count > 0) std::memcpy(items.data(), words.data() + at, items.size() * sizeof(items[0]));
  };
  copy(plan.spans, plan.header.span_at, plan.header.spans);
  copy(plan.merges, plan.header.merge_at, plan.header.merges);
  copy(plan.prefills, plan.header.prefill_at, plan.header.prefills);
  return plan;
}

// Every row is either merged from results that span items write, one for each span in which it sees a key, or in one
// prefill item. Returns the number of rows of prefill items.
int CheckPlan(const Step& step, const AttentionShape& shape, const AttentionCapacity& capacity) {
  const Plan plan = Build(step, shape, capacity);
  const int heads = ItemHeads(shape.group);
  std::map<int, std::pair<int, int>> written;  // partial -> row, span
  std::map<int, int> position_of;              // row ->
  std::vector<int> seq_of(size_t(step.rows()));
  for (size_t seq = 0; seq < step.context_len.size(); ++seq) {
    for (int row = step.row_begin[seq]; row < step.row_begin[seq + 1]; ++row) {
      seq_of[size_t(row)] = int(seq);
      position_of[row] = step.context_len[seq] - (step.row_begin[seq + 1] - row);
    }
  }
  const auto check_rows = [&](const auto& item, int limit) {
    EXPECT_GT(item.tokens, 0);
    EXPECT_LE(item.tokens * heads, std::max(limit, heads));
    for (int t = 0; t < item.tokens; ++t) {
      EXPECT_EQ(seq_of.at(size_t(item.row + t)), item.seq);
      EXPECT_EQ(position_of.at(item.row + t), item.position + t);
    }
  };
  for (const SpanItem& item : plan.spans) {
    check_rows(item, kSpanItemRows);
    for (int t = 0; t < item.tokens; ++t) {
      const int partial = item.partial + t * item.stride;
      EXPECT_GE(partial, 0);
      EXPECT_LT(partial, plan.header.partials);
      EXPECT_TRUE(written.insert({partial, {item.row + t, item.span}}).second) << "written twice";
    }
  }
  std::set<int> done;
  for (const MergeItem& item : plan.merges) {
    EXPECT_TRUE(done.insert(item.row).second);
    // Brute force: every key that the row sees lies in a span that is merged, and no other span is.
    const int last = position_of.at(item.row);
    std::set<int> spans;
    for (int key = 0; key <= last; ++key) {
      if (shape.window == 0 || last - key < shape.window) spans.insert(key / kAttentionSpan);
    }
    EXPECT_EQ(size_t(item.spans), spans.size());
    int i = 0;
    for (int span : spans) {
      EXPECT_EQ(written.at(item.partial + i++), std::make_pair(item.row, span)) << "row " << item.row;
    }
  }
  int whole = 0, before = INT32_MAX;
  for (const PrefillItem& item : plan.prefills) {
    check_rows(item, PrefillItemRows(shape.head_dim));
    for (int t = 0; t < item.tokens; ++t) EXPECT_TRUE(done.insert(item.row + t).second);
    whole += item.tokens;
    if (shape.window == 0) {
      EXPECT_LE(item.position + item.tokens, before) << "longest first";
      before = item.position + item.tokens;
    }
  }
  EXPECT_EQ(int(done.size()), step.rows());
  EXPECT_LE(plan.header.partials, capacity.partials);
  return whole;
}

TEST(AttentionPlan, CoversEveryRowAndKeyOnce) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto below = [&](int n) { return int(rng() % uint64_t(n)); };
  for (int trial = 0; trial < 300; ++trial) {
    AttentionShape shape;
    shape.group = 1 + below(trial % 3 == 0 ? 40 : 9);
    shape.head_dim = trial % 2 == 0 ? 64 : 256;
    shape.window = std::vector<int>{0, 0, 1, 2, 100, 256, 257, 700}[size_t(below(8))];
    Step step;
    const int seqs = below(7);
    int longest = 1;
    for (int s = 0; s < seqs; ++s) {
      const int rows = below(4) == 0 ? below(200) : below(10);
      const int context = rows + below(3) * below(1500) + (rows == 0);
      longest = std::max(longest, context);
      step.Add(rows, context);
    }
    AttentionCapacity capacity = CapacityFor(step.rows() + below(5), seqs + below(3), longest + below(600), shape);
    CheckPlan(step, shape, capacity);
    capacity.partials = capacity.spans = below(20);  // not enough: the others are prefilled
    CheckPlan(step, shape, capacity);
    capacity.partials = capacity.spans = 0;
    EXPECT_EQ(CheckPlan(step, shape, capacity), step.rows());
  }
}

TEST(AttentionPlan, FewRowsAreSplitAndManyAreNot) {
  const AttentionShape shape{4, 128, 0};
  const AttentionCapacity capacity = CapacityFor(64, 4, 10000, shape);
  for (const int rows : {1, 4, 5, 16}) {
    Step step;
    step.Add(rows, 9999);
    const Plan plan = Build(step, shape, capacity);
    EXPECT_EQ(plan.header.spans, 40 * ((rows + 3) / 4)) << rows;
    EXPECT_EQ(plan.header.prefills, 0);
  }
  Step step;
  step.Add(17, 9999);
  EXPECT_EQ(Build(step, shape, capacity).header.spans, 0);
  EXPECT_EQ(Build(step, shape, capacity).header.prefills, 1);
}

TEST(AttentionPlan, ItemsOfOneSpanStandTogether) {
  const AttentionShape shape{16, 64, 0};
  Step step;
  step.Add(3, 600);
  const Plan plan = Build(step, shape, CapacityFor(3, 1, 600, shape));
  ASSERT_EQ(plan.spans.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(plan.spans[i].span, int(i) / 3);
    EXPECT_EQ(plan.spans[i].row, int(i) % 3);
  }
}

TEST(AttentionPlan, CapacityIsBounded) {
  // 256 sequences of 128k tokens: results of more spans than that would fill the device.
  const AttentionCapacity capacity = CapacityFor(256, 256, 131072, {4, 128, 0});
  EXPECT_EQ(capacity.partials, kMaxPartials);
  EXPECT_EQ(capacity.merges, 256);
  EXPECT_LE(capacity.words() * 4, 300u << 10);
  // A window sees few spans.
  EXPECT_LE(CapacityFor(256, 256, 131072, {4, 128, 512}).partials, 256 * 4);
}

}  // namespace
}  // namespace sluice::kernels::cuda
