// The running sums of a worker's load against the same kept the plain way, over random histories.
#include "router/load_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

constexpr int64_t kBlocks = 200;

// What load_model.h says, looked up anew each time.
struct Plain {
  struct Attempt {
    Demand demand;
    int64_t computed = 0;
    int generated = 0;
    bool granted = false;
    bool reported = false;
  };
  int64_t free = kBlocks;
  std::map<AttemptKey, Attempt> attempts;

  int64_t Sum(auto what) const {
    int64_t sum = 0;
    for (const auto& [key, attempt] : attempts) sum += what(attempt);
    return sum;
  }
  int64_t blocks_free() const {
    return free - Sum([](const Attempt& a) { return a.reported ? 0 : a.demand.Blocks(16); });
  }
  int64_t backlog() const {
    return Sum([](const Attempt& a) { return a.demand.prompt_tokens - a.computed; });
  }
};

TEST(LoadModelTest, SumsAreThoseOfTheAttempts) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  for (pb::Role role : {pb::ROLE_PREFILL, pb::ROLE_DECODE, pb::ROLE_BOTH}) {
    pb::WorkerInfo info;
    info.set_role(role);
    info.set_blocks_total(kBlocks);
    info.mutable_fingerprint()->set_block_size(16);
    WorkerLoad load(info);
    Plain plain;
    for (int step = 0; step < 20000; ++step) {
      const AttemptKey key{absl::StrCat("r", rng() % 12), 1};
      const auto it = plain.attempts.find(key);
      const bool known = it != plain.attempts.end();
      switch (rng() % 7) {
        case 0: {
          if (known) break;
          const Demand demand{int(1 + rng() % 300), int(rng() % 40), int(1 + rng() % 3)};
          const int cached = int(rng() % uint64_t(demand.prompt_tokens));
          load.Dispatched(key, demand, cached);
          plain.attempts[key] = {.demand = demand, .computed = cached};
          break;
        }
        case 1:
          load.Granted(key);
          if (known) it->second.granted = true;
          break;
        case 2: {
          const int64_t computed = int64_t(rng() % 400);
          load.Computed(key, computed);
          if (!known) break;
          it->second.granted = true;
          it->second.computed =
              std::max(it->second.computed, std::min<int64_t>(computed, it->second.demand.prompt_tokens));
          break;
        }
        case 3: {
          const int tokens = int(1 + rng() % 3);
          load.Generated(key, tokens);
          if (known) it->second.generated += tokens;
          break;
        }
        case 4:
          load.Ended(key);
          if (!known) break;
          if (it->second.reported) plain.free = std::min(kBlocks, plain.free + it->second.demand.Blocks(16));
          plain.attempts.erase(it);
          break;
        case 5: {
          const int64_t free = int64_t(rng() % kBlocks);
          load.Refused(key, free);
          if (known) plain.attempts.erase(it);
          plain.free = free;
          for (auto& [other, attempt] : plain.attempts) attempt.reported = attempt.reported || attempt.granted;
          break;
        }
        default: {
          pb::WorkerReport report;
          report.set_blocks_free(int64_t(rng() % kBlocks));
          load.Report(report);
          plain.free = report.blocks_free();
          for (auto& [other, attempt] : plain.attempts) attempt.reported = attempt.granted;
        }
      }
      ASSERT_EQ(load.attempts(), int(plain.attempts.size()));
      ASSERT_EQ(load.blocks_free(), plain.blocks_free()) << "step " << step;
      ASSERT_EQ(load.choices(), plain.Sum([](const auto& a) { return a.demand.choices; })) << "step " << step;
      ASSERT_EQ(load.answer_tokens(), plain.Sum([](const auto& a) {
        return std::max<int64_t>(0, a.demand.AllAnswerTokens() - a.generated);
      })) << "step "
          << step;
      if (role == pb::ROLE_PREFILL) {
        ASSERT_EQ(load.prompt_backlog(), plain.backlog()) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::router
