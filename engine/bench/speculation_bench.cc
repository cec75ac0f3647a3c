// Prompt lookup on one model: what it gains where an answer copies from its prompt, and what it loses where it cannot
// help. Also what a verification row costs, from which `row_cost` follows.
//
// One process, two engines (without and with drafts) that make their steps in turns, so that a busy moment hits both
// alike: the ratio of a pair is what counts. Times are those of the decode steps, by the clock on the wall, or by the
// time of the processor (--clock cpu, one thread) where others keep the machine busy. The tokens of both must be equal,
// else the benchmark fails.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "engine/speculation/row_cost.h"
#include "engine/text/tokenizer.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

constexpr int kMaxSeqs = 16, kMaxDrafts = 8;

bool cpu_clock = false;

double Now() {
  timespec now;
  clock_gettime(cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// ---- the texts

struct Text {
  std::string name;
  std::vector<std::string> prompts;  // one a sequence; they run together
  int answer = 0;
  float temperature = 0;
  bool copies = false;
};

constexpr const char* kPassage =
    "The harbour of Saltmere was built in 1874 by Edwin Marsh, who had studied the tides for eleven years. Its two "
    "stone "
    "arms reach 320 metres into the bay and leave a gap of 41 metres for the ships. On the northern arm stands a "
    "lighthouse with a fixed white light; on the southern one there is a bell that rings in fog. In the winter of 1903 "
    "a "
    "storm broke 60 metres off the southern arm, and for nine years the fishermen moored their boats in the river. The "
    "repair took 14,000 blocks of granite from the quarry at Hollow Hill. Since 1912 the harbour has been closed only "
    "once, for six days in 1947, when the bay froze over and people walked from one arm to the other.";

constexpr const char* kCode =
    "def load_orders(path):\n    orders = []\n    with open(path) as handle:\n        for line in handle:\n            "
    "fields = line.strip().split(',')\n            if len(fields) != 4:\n                continue\n            "
    "orders.append({'id': int(fields[0]), 'customer': fields[1], 'amount': float(fields[2]), 'day': fields[3]})\n    "
    "return orders\n\n\ndef total_by_customer(orders):\n    totals = {}\n    for order in orders:\n        name = "
    "order['customer']\n        totals[name] = totals.get(name, 0.0) + order['amount']\n    return totals\n\n\ndef "
    "print_report(orders):\n    totals = total_by_customer(orders)\n    for name in sorted(totals):\n        "
    "print(name, round(totals[name], 2))\n";

std::string Chat(const std::string& user) {
  return absl::StrCat(
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>"
      "\n<|im_start|>user\n",
      user, "<|im_end|>\n<|im_start|>assistant\n");
}

std::vector<Text> Texts() {
  const std::string copy = absl::StrCat("Passage:\n", kPassage, "\n\nThe same passage, word for word:\n");
  const std::string edit = absl::StrCat("# File before the change\n", kCode,
                                        "\n# File after the change: the function print_report is called show_report\n");
  std::vector<Text> texts = {
      {"copy a passage", {copy}, 160, 0, true},
      {"edit code", {edit}, 160, 0, true},
      {"story, drawn", {Chat("Tell me a story about a lamp maker who moves to a new town.")}, 160, 1.0f, false},
      {"list of facts, drawn", {Chat("Write about the planets, each in a sentence of its own.")}, 160, 1.0f, false},
  };
  Text many{"8 stories, drawn", {}, 64, 1.0f, false};
  const char* about[] = {"a ferry", "a red kite", "two sisters", "an old map", "a violin", "snow", "a debt", "bread"};
  for (const char* what : about) many.prompts.push_back(Chat(absl::StrCat("Tell me a story about ", what, ".")));
  texts.push_back(many);
  Text copies{"8 copies of passages", {}, 64, 0, true};
  for (const char* what : about) {
    copies.prompts.push_back(
        absl::StrCat("Passage on ", what, ":\n", kPassage, "\n\nThe same passage on ", what, ":\n"));
  }
  texts.push_back(copies);
  return texts;
}

// ---- drafters

// Always as many drafts as the board says, of no use: what rows cost.
struct RowsBoard {
  int drafts = 0;
};
class Ballast final : public Drafter {
 public:
  explicit Ballast(const RowsBoard* board) : board_(board) {}
  bool active(int) const override { return board_->drafts > 0; }
  std::vector<int32_t> Propose(std::span<const int32_t> tokens, int limit) override {
    return std::vector<int32_t>(size_t(std::min(limit, board_->drafts)), tokens[0]);
  }
  void Report(int, int, int) override {}
  void set_row_cost(double) override {}

 private:
  const RowsBoard* board_;
};

// ---- running

struct Run {
  double seconds = 0;          // of the decode steps
  int64_t tokens = 0;          // that they yielded
  int64_t sequence_steps = 0;  // rows without drafts: steps, times the sequences in each
  uint64_t drafted = 0, accepted = 0;
  std::map<uint64_t, std::vector<int32_t>> answers;

  double rate() const { return double(tokens) / seconds; }
};

// One engine's way through a text, step by step.
class Runner {
 public:
  explicit Runner(Engine* engine) : engine_(engine) {}

  absl::Status Start(const Text& text, const Tokenizer& tokenizer) {
    run_ = {};
    before_ = engine_->stats();
    for (size_t i = 0; i < text.prompts.size(); ++i) {
      EngineRequest r;
      r.id = i + 1;
      r.tokens = tokenizer.Encode(text.prompts[i], SpecialText::kParse);
      r.num_prompt_tokens = int(r.tokens.size());
      r.sampling.max_tokens = text.answer;
      r.sampling.temperature = text.temperature;
      r.sampling.seed = 17 + i;
      if (absl::Status s = engine_->Add(std::move(r)); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  bool busy() const { return engine_->has_work(); }

  absl::Status Step() {
    const EngineStats stats = engine_->stats();
    const bool decode = stats.waiting_tokens == 0;
    const double begin = Now();
    auto outputs = engine_->Step();
    const double seconds = Now() - begin;
    if (!outputs.ok()) return outputs.status();
    for (const TokenOutput& out : *outputs) run_.answers[out.id].push_back(out.sampled.token);
    if (!decode) return absl::OkStatus();
    run_.seconds += seconds;
    run_.tokens += int64_t(outputs->size());
    run_.sequence_steps += stats.running;
    return absl::OkStatus();
  }

  Run Take() {
    run_.drafted = engine_->stats().drafted - before_.drafted;
    run_.accepted = engine_->stats().accepted_drafts - before_.accepted_drafts;
    return std::move(run_);
  }

 private:
  Engine* engine_;
  Run run_;
  EngineStats before_;
};

struct Spread {
  std::vector<double> values;
  double at(double q) const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double place = q * double(sorted.size() - 1);
    const size_t below = size_t(place);
    const double rest = place - double(below);
    return below + 1 < sorted.size() ? sorted[below] * (1 - rest) + sorted[below + 1] * rest : sorted[below];
  }
  nlohmann::json json() const { return {{"median", at(0.5)}, {"min", at(0)}, {"max", at(1)}}; }
};

struct Setup {
  std::unique_ptr<ModelFile> file;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Tokenizer> tokenizer;
};

absl::StatusOr<std::unique_ptr<Engine>> NewEngine(const Setup& setup, DrafterFactory drafter, bool learns = false) {
  EngineOptions o;
  o.max_context = std::min(2048, setup.file->config().context_length);
  o.scheduler.max_step_seqs = kMaxSeqs;
  o.scheduler.max_step_logits = kMaxSeqs * (1 + kMaxDrafts);
  o.scheduler.max_drafts = drafter ? kMaxDrafts : 0;
  o.new_drafter = std::move(drafter);
  if (learns) o.seconds = Now;
  return Engine::Create(*setup.file, *setup.backend, o);
}

// Medians of step times by rows, decode rows of `batch` sequences and 0..8 useless drafts each, in turns.
absl::StatusOr<nlohmann::json> MeasureRows(const Setup& setup, int repetitions) {
  RowsBoard board;
  auto engine = NewEngine(setup, [&] { return std::make_unique<Ballast>(&board); });
  if (!engine.ok()) return engine.status();
  nlohmann::json all = nlohmann::json::array();
  uint64_t id = 1000;
  for (const auto& [batch, context] : std::vector<std::pair<int, int>>{{1, 64}, {2, 64}, {4, 64}, {8, 64}, {1, 1024}}) {
    for (int i = 0; i < batch; ++i) {
      EngineRequest r;
      r.id = ++id;
      for (int t = 0; t < context; ++t) r.tokens.push_back(int32_t((r.id * 7919 + uint64_t(t) * 104729) % 40000));
      r.num_prompt_tokens = context;
      r.sampling.max_tokens = 700;
      if (absl::Status s = (*engine)->Add(std::move(r)); !s.ok()) return s;
    }
    board.drafts = 0;
    while ((*engine)->stats().waiting_tokens > 0) {
      if (auto s = (*engine)->Step(); !s.ok()) return s.status();
    }
    const std::vector<int> drafts = {0, 1, 2, 4, 8};
    std::vector<Spread> times(drafts.size()), shares(drafts.size());
    RowCost cost(0.3);
    for (int i = 0; i < 6 * repetitions; ++i) {
      double none = 0;
      for (size_t k = 0; k < drafts.size(); ++k) {
        board.drafts = drafts[k];
        const double begin = Now();
        if (auto s = (*engine)->Step(); !s.ok()) return s.status();
        const double seconds = Now() - begin;
        times[k].values.push_back(seconds);
        cost.Report(batch * (1 + drafts[k]), seconds);
        if (k == 0) none = seconds;
        if (k > 0) shares[k].values.push_back((seconds - none) / none / drafts[k]);
      }
    }
    while (id > 0 && (*engine)->Cancel(id)) --id;
    id += 100;
    nlohmann::json row = {{"batch", batch}, {"context", context}, {"learned_row_cost", cost.Share(batch)}};
    std::printf("batch %d, context %4d: step %6.1f ms;", batch, context, 1e3 * times[0].at(0.5));
    for (size_t k = 1; k < drafts.size(); ++k) {
      std::printf(" +%d: %.2f", drafts[k], shares[k].at(0.5));
      row["share_per_draft"][std::to_string(drafts[k])] = shares[k].at(0.5);
    }
    row["step_seconds"] = times[0].at(0.5);
    std::printf(" of a step per draft; learned %.2f\n", cost.Share(batch));
    std::fflush(stdout);
    all.push_back(std::move(row));
  }
  return all;
}

struct Flags {
  std::string compute = "int8";
  std::string model, json;
  int threads = 2, repetitions = 5;
  double row_cost = -1;
  bool rows = true;
};

absl::Status Compare(const Setup& setup, const Flags& flags, nlohmann::json& out) {
  const bool learns = flags.row_cost < 0;
  PromptLookupOptions options;
  if (!learns) options.row_cost = flags.row_cost;
  auto plain = NewEngine(setup, {});
  auto lookup = NewEngine(
      setup, [&] { return std::make_unique<PromptLookupDrafter>(options); }, learns);
  if (!plain.ok()) return plain.status();
  if (!lookup.ok()) return lookup.status();
  Runner runners[] = {Runner(plain->get()), Runner(lookup->get())};

  const std::vector<Text> texts = Texts();
  struct Figures {
    Spread plain, lookup, ratio;
    Run last;
  };
  std::vector<Figures> figures(texts.size());
  for (int i = 0; i < flags.repetitions; ++i) {
    for (size_t t = 0; t < texts.size(); ++t) {
      for (Runner& r : runners) {
        if (absl::Status s = r.Start(texts[t], *setup.tokenizer); !s.ok()) return s;
      }
      while (runners[0].busy() || runners[1].busy()) {
        for (Runner& r : runners) {
          if (!r.busy()) continue;
          if (absl::Status s = r.Step(); !s.ok()) return s;
        }
      }
      const Run run[] = {runners[0].Take(), runners[1].Take()};
      if (run[0].answers != run[1].answers) {
        return absl::InternalError(absl::StrCat(texts[t].name, ": drafts changed the tokens"));
      }
      Figures& f = figures[t];
      f.plain.values.push_back(run[0].rate());
      f.lookup.values.push_back(run[1].rate());
      f.ratio.values.push_back(run[1].rate() / run[0].rate());
      f.last = run[1];
    }
  }
  std::printf("%-22s %9s %9s %17s %12s %s\n", "text", "plain/s", "lookup/s", "ratio (min..max)", "tokens/step",
              "drafts");
  for (size_t t = 0; t < texts.size(); ++t) {
    const Figures& f = figures[t];
    const double per_step = double(f.last.tokens) / double(f.last.sequence_steps);
    std::printf("%-22s %9.1f %9.1f %5.3f (%.3f..%.3f) %10.2f   %llu of %llu\n", texts[t].name.c_str(), f.plain.at(0.5),
                f.lookup.at(0.5), f.ratio.at(0.5), f.ratio.at(0), f.ratio.at(1), per_step,
                static_cast<unsigned long long>(f.last.accepted), static_cast<unsigned long long>(f.last.drafted));
    out["texts"].push_back({{"name", texts[t].name},
                            {"copies", texts[t].copies},
                            {"sequences", texts[t].prompts.size()},
                            {"tokens_per_second_plain", f.plain.json()},
                            {"tokens_per_second_lookup", f.lookup.json()},
                            {"ratio", f.ratio.json()},
                            {"tokens_per_step", per_step},
                            {"drafted", f.last.drafted},
                            {"accepted", f.last.accepted}});
  }
  return absl::OkStatus();
}

absl::Status RunAll(const Flags& flags) {
  Setup setup;
  auto file = OpenModel(flags.model);
  if (!file.ok()) return file.status();
  setup.file = *std::move(file);
  auto backend = kernels::NewCpuBackend(
      {.threads = flags.threads,
       .compute = *kernels::CpuComputeFromName(flags.compute)});
  if (!backend.ok()) return backend.status();
  setup.backend = *std::move(backend);
  auto tokenizer = Tokenizer::Create(setup.file->tokenizer());
  if (!tokenizer.ok()) return tokenizer.status();
  setup.tokenizer = *std::move(tokenizer);

  nlohmann::json out = {{"threads", flags.threads},
                        {"clock", cpu_clock ? "cpu" : "wall"},
                        {"numerics", std::string(setup.backend->numerics_id())},
                        {"repetitions", flags.repetitions},
                        {"row_cost", flags.row_cost >= 0 ? nlohmann::json(flags.row_cost) : nlohmann::json("learned")}};
  if (flags.rows) {
    auto rows = MeasureRows(setup, flags.repetitions);
    if (!rows.ok()) return rows.status();
    out["rows"] = *rows;
  }
  if (absl::Status s = Compare(setup, flags, out); !s.ok()) return s;
  if (!flags.json.empty()) std::ofstream(flags.json) << out.dump(1) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Prompt lookup against steps without drafts");
  sluice::engine::Flags flags;
  app.add_option("model", flags.model, "GGUF file")->required();
  app.add_option("--compute", flags.compute, "Arithmetic")->check(CLI::IsMember({"int8", "native", "bf16", "f32"}));
  app.add_option("--threads", flags.threads, "Compute threads")->check(CLI::Range(1, 1024));
  std::string clock = "wall";
  app.add_option("--clock", clock, "wall, or cpu: processor time, for one thread")
      ->check(CLI::IsMember({"wall", "cpu"}));
  app.add_option("--repetitions", flags.repetitions, "Pairs of runs of every text")->check(CLI::Range(1, 1000));
  app.add_option("--row-cost", flags.row_cost, "A fixed cost of a draft row; default: learned from the steps");
  app.add_flag("!--no-rows", flags.rows, "Skip the cost of rows");
  app.add_option("--json", flags.json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (clock == "cpu" && flags.threads != 1) {
    std::cerr << "speculation_bench: --clock cpu needs --threads 1\n";
    return 2;
  }
  sluice::engine::cpu_clock = clock == "cpu";
  const absl::Status status = sluice::engine::RunAll(flags);
  if (status.ok()) return 0;
  std::cerr << "speculation_bench: " << status.message() << "\n";
  return 1;
}
