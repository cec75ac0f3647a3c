#include "cli/bench/options.h"

#include <cmath>
#include <limits>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice::cli::bench {
namespace {

constexpr int kLeastForGoodput = 200;  // requests at each rate
constexpr int kMost = 10000000;

constexpr char kFooter[] = R"(
Examples:
  sluice bench --rate 4 --requests 200 --input-tokens 256:64 --output-tokens 64 --ttft-slo-ms 500 --tpot-slo-ms 50
  sluice bench --rate inf --max-concurrency 16 --requests 100          (closed loop: sixteen at a time)
  sluice bench --trace bench/traces/mooncake_conversation_2000.jsonl --divide 32 --speed 2 --requests 100
  sluice bench --api chat --http localhost:8000 --rate 2 --json out.json --plot out.svg
  sluice bench --goodput-search --rate 1 --ttft-slo-ms 500 --tpot-slo-ms 50

Requests come when the schedule says, whether or not earlier ones have ended. TTFT counts from the scheduled arrival to
the first token, TPOT is (last - first) / (tokens - 1), ITL every gap between tokens. A request is good when it was done
within --ttft-slo-ms and --tpot-slo-ms; attainment is good / offered, with Wilson's 95 % interval. The same --seed asks for
the same prompts, which a second run finds in prefix caches; without it one is drawn, and reported.
Ctrl-C prints what there is; what was under way then counts as abandoned.
Exit codes: 0 measured, 1 unreachable or no request was done, 2 wrong flags, 130 Ctrl-C.)";

void AddLoad(CLI::App* command, BenchOptions* o) {
  command->add_option("--rate", o->rate, "Requests per second, or inf: all at once, or as --max-concurrency lets")
      ->capture_default_str()
      ->type_name("R");
  command
      ->add_option("--burstiness", o->burstiness, "Shape of the gamma distribution of gaps; 1: Poisson, less: bursts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--max-concurrency", o->max_concurrency, "Requests that may be under way at once; 0: no limit")
      ->check(CLI::Range(0, kMost))
      ->capture_default_str();
  command->add_option("--requests", o->requests, "How many; of each rate with --goodput-search")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  command->add_option("--warmup", o->warmup, "Requests before these, four at a time, that do not count")
      ->check(CLI::Range(0, kMost))
      ->capture_default_str();
  command->add_option("--timeout", o->timeout_s, "Abandon a request after S seconds; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void AddWorkload(CLI::App* command, BenchOptions* o) {
  command->add_option("--input-tokens", o->input_tokens, "Of a prompt: MEAN or MEAN:RANGE, uniform in MEAN +- RANGE")
      ->capture_default_str()
      ->type_name("MEAN[:RANGE]");
  command->add_option("--output-tokens", o->output_tokens, "Of an answer, likewise")
      ->capture_default_str()
      ->type_name("MEAN[:RANGE]");
  command
      ->add_option("--shared-prefix-tokens", o->shared_prefix_tokens,
                   "Every prompt begins with so many more, which others share")
      ->check(CLI::Range(0, kMost))
      ->capture_default_str();
  command->add_option("--prefixes", o->prefixes, "How many different shared prefixes there are")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  CLI::Option* trace =
      command->add_option("--trace", o->trace, "Replay a recorded trace: Mooncake's JSON lines or Azure's CSV");
  trace->type_name("FILE");
  command->add_option("--divide", o->divide, "With --trace: lengths are divided by N")
      ->check(CLI::Range(1, kMost))
      ->needs(trace)
      ->capture_default_str();
  command->add_option("--speed", o->speed, "With --trace: arrivals come so many times as fast")
      ->check(CLI::PositiveNumber)
      ->needs(trace)
      ->capture_default_str();
  command->add_option("--vocabulary", o->vocabulary, "Prompts are of token ids below this; default: the server's")
      ->check(CLI::Range(2, kMost));
  command->add_option("--seed", o->seed, "Of arrivals, lengths, prompts and sampling; default: drawn");
  command->add_option("--temperature", o->temperature, "Of sampling; 0 is greedy")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--ignore-eos,!--no-ignore-eos", o->ignore_eos,
                    "Answers have all their tokens (the default), or end where the model ends them");
}

void AddOutcome(CLI::App* command, BenchOptions* o) {
  command->add_option("--ttft-slo-ms", o->slo.ttft_ms, "A good request has its first token within this");
  command->add_option("--tpot-slo-ms", o->slo.tpot_ms, "and no more than this for each further one");
  command->add_flag("--goodput-search", o->goodput_search,
                    "Find the highest rate with an attainment of --goodput-share, from --rate on");
  command->add_option("--goodput-share", o->goodput_share, "of the offered requests")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  command->add_option("--goodput-precision", o->goodput_precision, "The search ends when two rates are so near")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  command->add_option("--goodput-tries", o->goodput_tries, "or after so many rates")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--json", o->json, "Write summary and every record to a file")->type_name("FILE");
  command->add_option("--plot", o->plot, "Draw TTFT, TPOT and the time line")->type_name("FILE.svg");
  command->add_flag("--quiet", o->quiet, "No line of progress on stderr");
}

}  // namespace

absl::Status CheckTogether(const BenchOptions& o, double* rate) {
  if (o.rate == "inf") {
    *rate = std::numeric_limits<double>::infinity();
  } else if (!absl::SimpleAtod(o.rate, rate) || !(*rate > 0) || !std::isfinite(*rate)) {
    return absl::InvalidArgumentError(absl::StrCat("--rate: \"", o.rate, "\" is not a number above 0, or inf"));
  }
  if (!o.plot.empty() && !absl::EndsWith(o.plot, ".svg")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--plot: ", o.plot, " does not end in .svg, which is what is drawn"));
  }
  if (!o.goodput_search) return absl::OkStatus();
  if (!o.slo.any()) return absl::InvalidArgumentError("--goodput-search needs --ttft-slo-ms, --tpot-slo-ms or both");
  if (!o.trace.empty() || o.max_concurrency > 0 || !std::isfinite(*rate)) {
    return absl::InvalidArgumentError(
        "--goodput-search goes with a finite --rate alone: no --trace, no --max-concurrency");
  }
  if (o.requests < kLeastForGoodput) {
    return absl::InvalidArgumentError(absl::StrCat("--requests: --goodput-search needs at least ", kLeastForGoodput,
                                                   " for each rate; fewer say nothing about a share of 90 %"));
  }
  return absl::OkStatus();
}

void AddBench(CLI::App& app, BenchOptions* o) {
  CLI::App* command = app.add_subcommand("bench", "Measure a cluster under load");
  command->add_option("--api", o->api, "grpc, or HTTP: completions, chat")
      ->check(CLI::IsMember({"grpc", "completions", "chat"}))
      ->capture_default_str();
  command->add_option("--router", o->router, "With grpc: address of the router, HOST:PORT")->capture_default_str();
  command->add_option("--http", o->http, "With completions and chat: its HTTP address, HOST:PORT")
      ->capture_default_str();
  command->add_option("--connections", o->connections, "With grpc: connections that requests share")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddLoad(command, o);
  AddWorkload(command, o);
  AddOutcome(command, o);
  command->footer(kFooter);
}

}  // namespace sluice::cli::bench
