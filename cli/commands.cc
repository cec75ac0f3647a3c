#include "cli/commands.h"

#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "cli/drain.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"
#include "cli/output.h"
#include "cli/status.h"
#include "cli/trace.h"

namespace sluice::cli {
namespace {

constexpr char kFooter[] = R"(
Examples:
  sluice generate "The capital of France is"
  sluice status
  sluice drain 127.0.0.1:40123
  sluice generate --json "Hello" | sluice trace >trace.json

Exit codes:
  0    done
  1    the router is unreachable, or it reported an error (UNAVAILABLE, DEADLINE_EXCEEDED, ...)
  2    wrong flags, or the router refused an argument and named it
  130  interrupted by Ctrl-C; the request was cancelled

`sluice COMMAND --help` explains a command.)";

constexpr char kGenerateFooter[] = R"(
Examples:
  sluice generate "The capital of France is"
  sluice generate --temperature 0.8 --top-p 0.95 --seed 7 --max-tokens 200 "Once upon a time"
  sluice generate --stop $'\n' --stats "Q: What is 2 + 2? A:"        (TTFT, TPOT and the timeline go to stderr)
  sluice generate --token-ids 504,3575,282,4649,314 --json            (one JSON object at the end)
  cat notes.txt | sluice generate --router gpu-box:50051 -            (the prompt from standard input)

The prompt is raw text: it may name special tokens such as <|im_start|>, and no chat template is applied.
Exit codes: 0 done, 1 unreachable or an error of the server, 2 wrong flags or a refused argument, 130 Ctrl-C.)";

constexpr char kStatusFooter[] = R"(
Examples:
  sluice status
  sluice status --router localhost:50061 --json | python3 -m json.tool

BLOCKS FREE counts free KV blocks and cached ones that may be evicted; it is back at its start when all is idle.
Exit codes: 0 done, 1 the router is unreachable or reported an error, 2 wrong flags.)";

constexpr char kDrainFooter[] = R"(
Examples:
  sluice drain 127.0.0.1:40123                (no new requests; returns when the last one has ended)
  sluice drain --hand-over 127.0.0.1:40123    (what it decodes goes on at other workers, at once)

`sluice status` shows the addresses. A drained worker stays so; stop it, or restart it to use it again.
Exit codes: 0 it has no request any more, 1 it still has some after --timeout or the router is unreachable, 2 wrong flags.)";

constexpr char kTraceFooter[] = R"(
Examples:
  sluice generate --json "Once upon a time" | sluice trace >trace.json
  for i in 1 2 3; do sluice generate --json "Hello $i"; done | sluice trace >trace.json

Open trace.json in chrome://tracing or https://ui.perfetto.dev: a row for the router and one for each worker.
Exit codes: 0 done, 2 the input is not what `sluice generate --json` prints.)";

void AddRouterOption(CLI::App* command, std::string* router) {
  command->add_option("--router", *router, "Address of the router, HOST:PORT")->capture_default_str();
}

void AddGenerate(CLI::App& app, GenerateOptions* options) {
  CLI::App* command = app.add_subcommand("generate", "Send one prompt and stream the answer");
  AddRouterOption(command, &options->router);
  command->add_option("--temperature", options->temperature, "0 is greedy (the default)");
  command->add_option("--top-p", options->top_p,
                      "Keep the likeliest tokens up to this probability, in (0, 1]; default 1");
  command->add_option("--top-k", options->top_k, "Keep the K likeliest tokens; 0 keeps all (the default)");
  command->add_option("--min-p", options->min_p,
                      "Keep tokens at least this many times as likely as the likeliest, in [0, 1]; default 0");
  command->add_option("--repetition-penalty", options->repetition_penalty,
                      "Above 1, tokens of the prompt and the answer become less likely; default 1");
  command->add_option("--presence-penalty", options->presence_penalty,
                      "Subtracted from the logit of what the answer has, in [-2, 2]; default 0");
  command->add_option("--frequency-penalty", options->frequency_penalty,
                      "The same, once per occurrence, in [-2, 2]; default 0");
  command->add_option("--logit-bias", options->logit_bias, "Added to tokens' logits: ID:BIAS,...; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--n", options->n, "Number of answers");
  command->add_option("--min-tokens", options->min_tokens, "No end before N tokens; default 0");
  command->add_option("--max-tokens", options->max_tokens, "Stop after N tokens")->capture_default_str();
  command->add_option("--seed", options->seed, "Same seed, same answer; drawn by the router when absent");
  command->add_option("--stop", options->stop, "End the answer before this text; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--stop-token-ids", options->stop_token_ids, "End the answer at one of these tokens: 1,2,3");
  command->add_option("--prompt-logprobs", options->prompt_logprobs,
                      "With --json: N alternatives of each prompt token");
  command->add_option("--logprobs", options->logprobs, "With --json: N alternatives of each token");
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-sequence token");
  CLI::Option* ids = command->add_option("--token-ids", options->token_ids, "The prompt as token ids: 1,2,3");
  command->add_flag("--raw", options->raw, "No chat template; always so in this version");
  command->add_flag("--json", options->json, "Print one JSON object at the end instead of text");
  command->add_flag("--stats", options->stats, "Print TTFT, TPOT, token counts and the timeline to stderr");
  command->add_option("--timeout", options->timeout_s, "Give up after S seconds");
  CLI::Option* prompt = command->add_option("prompt", options->prompt, "The text to continue; - reads standard input");
  prompt->excludes(ids);
  command->callback([prompt, ids] {
    if (prompt->count() == 0 && ids->count() == 0) throw CLI::RequiredError("a prompt or --token-ids");
  });
  command->footer(kGenerateFooter);
}

void AddStatus(CLI::App& app, StatusOptions* options) {
  CLI::App* command = app.add_subcommand("status", "Show the workers of a cluster");
  AddRouterOption(command, &options->router);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(kStatusFooter);
}

void AddDrain(CLI::App& app, DrainOptions* options) {
  CLI::App* command = app.add_subcommand("drain", "Send no new requests to a worker, and wait until it has none");
  AddRouterOption(command, &options->router);
  command->add_flag("--hand-over", options->hand_over,
                    "What it decodes goes on at other workers instead of ending there");
  command->add_option("--timeout", options->timeout_s, "Wait so many seconds; 0: do not wait")->capture_default_str();
  command->add_option("worker", options->worker, "Address of the worker, HOST:PORT")->required();
  command->footer(kDrainFooter);
}

void AddTrace(CLI::App& app, TraceOptions* options) {
  CLI::App* command = app.add_subcommand("trace", "Turn answers' timelines into a Chrome trace");
  command->add_option("file", options->file, "What `sluice generate --json` printed; - reads standard input")
      ->capture_default_str();
  command->footer(kTraceFooter);
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app("sluice: ask a Sluice cluster, and look at it", "sluice");
  app.footer(kFooter);
  app.require_subcommand(1);
  GenerateOptions generate;
  StatusOptions status;
  AddGenerate(app, &generate);
  AddStatus(app, &status);
  DrainOptions drain;
  AddDrain(app, &drain);
  TraceOptions trace;
  AddTrace(app, &trace);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      app.exit(error);
      const absl::Status shown = Print("");
      if (shown.ok()) return kExitOk;
      std::fprintf(stderr, "sluice: %s\n", std::string(shown.message()).c_str());
      return kExitServer;
    }
    std::fprintf(stderr, "sluice: %s (see sluice --help)\n", error.what());
    return kExitUsage;
  }
  if (app.got_subcommand("generate")) return RunGenerate(generate);
  if (app.got_subcommand("drain")) return RunDrain(drain);
  if (app.got_subcommand("trace")) return RunTrace(trace);
  return RunStatus(status);
}

}  // namespace sluice::cli
