// What the exchanges of a tensor-parallel step cost: processes with one shared mapping gather columns as a layer of the
// default model does, with nothing else to do.
//
//   kv_gather_bench [--ranks 2] [--steps N] [--json FILE]
//
// A layer exchanges four times (engine/parallel/tensor_split.h): attention, its projection, the gate, the MLP's
// projection; a step ends with the head's logits, which rank 0 alone gets. Times are rank 0's, from call to return, so
// they hold the waiting for whoever is late.
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/parallel/shared_memory_collective.h"
#include "glog/logging.h"

namespace sluice::bench {
namespace {

using engine::SharedMemoryCollective;
using To = kernels::Collective::To;
using Clock = std::chrono::steady_clock;

constexpr int kLayers = 30;
constexpr int64_t kEmbedding = 576, kHidden = 1536, kVocabulary = 49152;
constexpr int64_t kRows[] = {1, 8, 64, 128};
constexpr size_t kBufferBytes = size_t{1} << 20;  // as workers have it (worker/rank_group.cc)

struct Flags {
  int ranks = 2;
  int steps = 200;
  bool pin = false;
  std::string json;
};

// One kind of exchange, as often as it was timed.
struct Timed {
  int64_t columns = 0;
  std::vector<double> us;
};

class Rank {
 public:
  Rank(std::byte* memory, int rank, const Flags& flags)
      : flags_(flags), collective_(memory, rank, flags.ranks, kBufferBytes), rows_(size_t(128 * kVocabulary)) {}

  // Microseconds of an exchange of [count][columns]; what came from the others is looked at, after the clock.
  double Gather(int64_t count, int64_t columns, To to) {
    const int ranks = flags_.ranks, mine = collective_.rank();
    std::vector<int64_t> borders;
    for (int r = 0; r <= ranks; ++r) borders.push_back(columns * r / ranks / 16 * 16);
    borders.back() = columns;
    ++exchanges_;
    rows_[size_t(borders[size_t(mine)])] = Mark(mine);
    const auto began = Clock::now();
    const absl::Status s = collective_.Gather(rows_.data(), columns, count, borders, to);
    const auto ended = Clock::now();
    CHECK(s.ok()) << s;
    for (int r = 0; r < ranks && (to == To::kAll || mine == 0); ++r) {
      CHECK_EQ(rows_[size_t(borders[size_t(r)])], Mark(r)) << "of rank " << r << " at rank " << mine;
    }
    return std::chrono::duration<double, std::micro>(ended - began).count();
  }

  // The four exchanges of a layer, microseconds in all.
  double Layer(int64_t count, Timed& narrow, Timed& wide) {
    double sum = 0;
    for (const int64_t columns : {kEmbedding, kEmbedding, kHidden, kEmbedding}) {
      const double us = Gather(count, columns, To::kAll);
      (columns == kHidden ? wide : narrow).us.push_back(us);
      sum += us;
    }
    return sum;
  }

 private:
  float Mark(int rank) const { return float(exchanges_ % 1000000 * 8 + rank); }

  const Flags& flags_;
  SharedMemoryCollective collective_;
  std::vector<float> rows_;
  int exchanges_ = 0;
};

double Quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, size_t(share * double(values.size())))];
}

std::string Show(std::vector<double>& us) {
  char text[64];
  std::snprintf(text, sizeof text, "%8.1f (%.1f, %.1f)", Quantile(us, 0.5), Quantile(us, 0.1), Quantile(us, 0.99));
  return text;
}

// Every rank runs it; rank 0 prints. 2 KB: 512 floats, of which each rank has its part.
void Measure(Rank& rank, bool prints, const Flags& flags) {
  std::string json;
  Timed two_kb{512, {}};
  for (int i = 0; i < flags.steps * 20; ++i) two_kb.us.push_back(rank.Gather(1, 512, To::kAll));
  if (prints) std::printf("one exchange of 2 KB: %s us; median (p10, p99)\n", Show(two_kb.us).c_str());
  json += "\"gather_2kb_us\": " + std::to_string(Quantile(two_kb.us, 0.5)) + ", \"rows\": [";
  for (const int64_t count : kRows) {
    Timed narrow{kEmbedding, {}}, wide{kHidden, {}}, layer, step, head;
    for (int i = 0; i < flags.steps; ++i) {
      double sum = 0;
      for (int l = 0; l < kLayers; ++l) {
        layer.us.push_back(rank.Layer(count, narrow, wide));
        sum += layer.us.back();
      }
      // The head computes one row a sequence; of a prompt's chunk at most the last.
      head.us.push_back(rank.Gather(std::min<int64_t>(count, 8), kVocabulary, To::kRank0));
      step.us.push_back(sum + head.us.back());
    }
    if (!prints) continue;
    std::printf("%4ld rows: 576 columns %s  1536 columns %s  layer %s  head %s  step %s us\n", long(count),
                Show(narrow.us).c_str(), Show(wide.us).c_str(), Show(layer.us).c_str(), Show(head.us).c_str(),
                Show(step.us).c_str());
    json += std::string(count == kRows[0] ? "" : ", ") + "{\"rows\": " + std::to_string(count) +
            ", \"layer_us\": " + std::to_string(Quantile(layer.us, 0.5)) +
            ", \"step_us\": " + std::to_string(Quantile(step.us, 0.5)) + "}";
  }
  if (prints && !flags.json.empty()) std::ofstream(flags.json) << "{" << json << "]}\n";
}

void Pin(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(size_t(rank) % size_t(sysconf(_SC_NPROCESSORS_ONLN)), &set);
  PCHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Cost of the exchanges of a tensor-parallel step");
  app.add_option("--ranks", flags.ranks, "Processes")->capture_default_str()->check(CLI::Range(2, 8));
  app.add_option("--steps", flags.steps, "Steps of each size")->capture_default_str();
  app.add_flag("--pin", flags.pin, "Each rank on a core of its own, in turns");
  app.add_option("--json", flags.json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  const size_t bytes = SharedMemoryCollective::BytesFor(flags.ranks, kBufferBytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PCHECK(memory != MAP_FAILED);
  for (int r = 1; r < flags.ranks; ++r) {
    const pid_t child = fork();
    PCHECK(child >= 0);
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (flags.pin) Pin(r);
    Rank rank(static_cast<std::byte*>(memory), r, flags);
    Measure(rank, false, flags);
    _exit(0);
  }
  if (flags.pin) Pin(0);
  Rank rank(static_cast<std::byte*>(memory), 0, flags);
  Measure(rank, true, flags);
  bool good = true;
  for (int status = 0; wait(&status) > 0;) good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::Main(argc, argv);
}
