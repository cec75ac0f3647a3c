// The kernels against a sampler that sorts and adds one after the other. tests/cuda_sampling compares them with the
// CPU's sampler, bit by bit; this one shares only exp, log and the generator with them.
#include "kernels/cuda/sampling/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/testing/device_array.h"
#include "kernels/philox.h"

namespace sluice::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
  std::vector<float> logits;
  SampleRow of;
  std::vector<LogitEdit> edits;
};

double Uniform(const SampleRow& of, int id) {
  const PhiloxBlock b =
      Philox({{uint32_t(id / 2), of.position, of.choice, 0}}, uint32_t(of.seed), uint32_t(of.seed >> 32));
  return PhiloxUniform(b.word[id % 2 * 2], b.word[id % 2 * 2 + 1]);
}

std::vector<int> BestFirst(const std::vector<float>& x) {
  std::vector<int> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[size_t(a)] > x[size_t(b)]; });
  return order;
}

std::vector<float> Clean(std::vector<float> x) {
  for (float& value : x) value = std::isnan(value) ? -kInfinity : value;
  return x;
}

int NaiveToken(const Row& row) {
  const SampleRow& of = row.of;
  if (of.kind == SampleKind::kGiven) return of.token;
  std::vector<float> x = row.logits;
  for (const LogitEdit& edit : row.edits) {
    float& logit = x[size_t(edit.id)];
    logit += edit.bias;
    if (edit.count >= 0) {
      double y =
          logit > 0 ? double(logit) / double(of.repetition_penalty) : double(logit) * double(of.repetition_penalty);
      if (edit.count > 0) y -= double(of.frequency_penalty) * edit.count + double(of.presence_penalty);
      logit = float(y);
    }
    if (edit.masked != 0) logit = -kInfinity;
  }
  x = Clean(x);
  std::vector<int> order = BestFirst(x);
  const float max = x[size_t(order[0])];
  if (max == -kInfinity) return of.token;
  if (of.temperature == 0) return order[0];
  if (of.top_k > 0) order.resize(std::min(order.size(), size_t(of.top_k)));
  std::vector<double> weight;
  for (int id : order) {
    const double d = x[size_t(id)] == max ? 0 : double(x[size_t(id)]) - double(max);
    weight.push_back(DetExp(d * (1 / double(of.temperature))));
  }
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double before = 0, best = 0;
  int winner = -1;
  for (size_t i = 0; i < order.size(); ++i) {
    if (of.top_p < 1 && before >= double(of.top_p) * total) break;
    before += weight[i];
    if (weight[i] == 0 || (weight[i] < double(of.min_p) && weight[i] < 1)) continue;
    const double e = -DetLog(Uniform(of, order[i])) / weight[i];
    if (winner < 0 || e < best || (e == best && order[i] < winner)) best = e, winner = order[i];
  }
  return winner;
}

struct Results {
  std::vector<SampledToken> tokens, tops;
};

Results Launch(const std::vector<Row>& rows, int vocab) {
  const size_t blocks = size_t(NumLogitBlocks(vocab));
  std::vector<float> logits, maxima;
  std::vector<SampleRow> of;
  std::vector<LogitEdit> edits;
  int tops = 0;
  for (const Row& row : rows) {
    of.push_back(row.of);
    of.back().first_edit = int(edits.size());
    of.back().num_edits = int(row.edits.size());
    of.back().first_top = tops;
    tops += std::max(row.of.logprobs, 0);
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    const std::vector<float> clean = Clean(row.logits);
    for (size_t b = 0; b < blocks; ++b) {
      maxima.push_back(
          *std::max_element(clean.begin() + std::ptrdiff_t(b * kLogitBlock),
                            clean.begin() + std::ptrdiff_t(std::min(clean.size(), (b + 1) * kLogitBlock))));
    }
  }
  DeviceArray<float> device_logits(logits), device_maxima(maxima);
  DeviceArray<SampleRow> device_rows(of);
  DeviceArray<LogitEdit> device_edits(edits);
  DeviceArray<SampledToken> out(of.size()), out_tops(static_cast<size_t>(tops));
  DeviceArray<char> workspace(SampleWorkspace(int(rows.size()), vocab, int(edits.size())));
  Check(Sample({.logits = device_logits.data(),
                .maxima = device_maxima.data(),
                .rows_of = device_rows.data(),
                .edits = device_edits.data(),
                .tokens = out.data(),
                .tops = out_tops.data(),
                .workspace = workspace.data(),
                .rows = int(rows.size()),
                .vocab = vocab},
               nullptr));
  return {out.Read(), out_tops.Read()};
}

Row RandomRow(Numbers& numbers, int vocab) {
  Row row;
  row.logits = numbers.Floats(size_t(vocab), 3);
  const int odd = 3 + numbers.Below(30);
  if (numbers.Below(3) == 0) {
    for (float& x : row.logits) {
      x = numbers.Below(odd) == 0 ? NAN : numbers.Below(odd) == 0 ? -kInfinity : std::round(x);  // with equals
    }
  }
  row.of = {.kind = SampleKind::kDraw,
            .token = 0,
            .logprobs = numbers.Below(3) == 0 ? -1 : std::min(vocab, numbers.Below(6)),
            .temperature = numbers.Below(4) == 0 ? 0.0f : 0.25f * float(1 + numbers.Below(8)),
            .top_p = numbers.Below(2) == 0 ? 1.0f : 0.05f + 0.1f * float(numbers.Below(10)),
            .min_p = numbers.Below(3) == 0 ? 0.1f : 0.0f,
            .top_k = numbers.Below(2) == 0 ? 0 : 1 + numbers.Below(vocab),
            .repetition_penalty = 1.25f,
            .presence_penalty = 0.5f,
            .frequency_penalty = 0.25f,
            .choice = uint32_t(numbers.Below(3)),
            .position = uint32_t(numbers.Below(1000)),
            .seed = uint64_t(numbers.Below(1 << 30)) << 20};
  if (numbers.Below(2) == 0) {
    const int step = 1 + numbers.Below(vocab);
    for (int id = numbers.Below(step); id < vocab; id += step) {
      row.edits.push_back(
          {id, numbers.Below(4) - 1, numbers.Below(3) == 0 ? numbers.Next(2) : 0, numbers.Below(5) == 0});
    }
  }
  return row;
}

TEST(Sample, IsThatOfSorting) {
  SLUICE_NEEDS_DEVICE();
  for (int seed = 0; seed < 16; ++seed) {
    Numbers numbers{uint64_t(seed)};
    const int vocab = std::vector<int>{1, 3, 64, 65, 127, 500, 4096, 5000}[size_t(seed % 8)];
    std::vector<Row> rows;
    for (int i = 0; i < 8; ++i) rows.push_back(RandomRow(numbers, vocab));
    const Results got = Launch(rows, vocab);
    size_t top = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int token = NaiveToken(rows[i]);
      ASSERT_EQ(got.tokens[i].token, token) << "seed " << seed << ", row " << i << " of " << vocab;
      if (rows[i].of.logprobs < 0) continue;
      const std::vector<float> x = Clean(rows[i].logits);
      const std::vector<int> order = BestFirst(x);
      const float max = x[size_t(order[0])];
      double sum = 0;
      for (float value : x) sum += value == max ? 1.0 : std::exp(double(value) - double(max));
      const auto logprob = [&](int id) {
        return float((x[size_t(id)] == max ? 0.0 : double(x[size_t(id)]) - double(max)) - std::log(sum));
      };
      const auto near = [&](float a, float b) { return a == b || std::abs(a - b) < 1e-5f; };
      EXPECT_TRUE(near(got.tokens[i].logprob, logprob(token))) << "seed " << seed << ", row " << i;
      for (int n = 0; n < rows[i].of.logprobs; ++n, ++top) {
        ASSERT_EQ(got.tops[top].token, order[size_t(n)]) << "seed " << seed << ", row " << i;
        EXPECT_TRUE(near(got.tops[top].logprob, logprob(order[size_t(n)]))) << "seed " << seed << ", row " << i;
      }
    }
  }
}

// Equal bits alone and beside others, at every place.
TEST(Sample, ARowKnowsNoOther) {
  SLUICE_NEEDS_DEVICE();
  Numbers numbers{99};
  std::vector<Row> rows;
  for (int i = 0; i < 7; ++i) rows.push_back(RandomRow(numbers, 777));
  const Results forward = Launch(rows, 777);
  std::vector<Row> turned(rows.rbegin(), rows.rend());
  const Results backward = Launch(turned, 777);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Results alone = Launch({rows[i]}, 777);
    for (const SampledToken& other : {forward.tokens[i], backward.tokens[rows.size() - 1 - i]}) {
      EXPECT_EQ(other.token, alone.tokens[0].token);
      EXPECT_EQ(std::bit_cast<uint32_t>(other.logprob), std::bit_cast<uint32_t>(alone.tokens[0].logprob));
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
