#include "cli/commands.h"

#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "cli/bench/bench.h"
#include "cli/chat/chat.h"
#include "cli/drain.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"
#include "cli/help.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/status.h"
#include "cli/top/top.h"
#include "cli/trace.h"

namespace sluice::cli {
namespace {

void AddRouterOption(CLI::App* command, std::string* router) {
  command->add_option("--router", *router, "Address of the router, HOST:PORT")->capture_default_str();
}

// What `generate` and `chat` have in common.
void AddSampling(CLI::App* command, GenerateOptions* options) {
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
  command->add_option("--min-tokens", options->min_tokens, "No end before N tokens; default 0");
  command->add_option("--seed", options->seed, "Same seed, same answer; drawn by the router when absent");
  command->add_option("--stop", options->stop, "End the answer before this text; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--stop-token-ids", options->stop_token_ids, "End the answer at one of these tokens: 1,2,3");
  command->add_option("--logprobs", options->logprobs, "With --json: N alternatives of each token");
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-sequence token");
  command->add_flag("--stats", options->stats, "Print TTFT, TPOT, token counts and the timeline to stderr");
  command->add_option("--timeout", options->timeout_s, "Give up after S seconds");
}

void AddGenerate(CLI::App& app, GenerateOptions* options) {
  CLI::App* command = app.add_subcommand("generate", "Send one prompt and stream the answer");
  AddRouterOption(command, &options->router);
  AddSampling(command, options);
  command->add_option("--n", options->n, "Number of answers");
  command->add_option("--prompt-logprobs", options->prompt_logprobs,
                      "With --json: N alternatives of each prompt token");
  command->add_option("--max-tokens", options->max_tokens, "Stop after N tokens; default 128");
  CLI::Option* ids = command->add_option("--token-ids", options->token_ids, "The prompt as token ids: 1,2,3");
  command->add_flag("--raw", options->raw,
                    "The prompt is continued as it is: no chat template, and it may name special tokens");
  command->add_flag("--json", options->json, "Print one JSON object at the end instead of text");
  CLI::Option* prompt = command->add_option("prompt", options->prompt, "What is asked; - reads standard input");
  prompt->excludes(ids);
  command->callback([prompt, ids] {
    if (prompt->count() == 0 && ids->count() == 0) throw CLI::RequiredError("a prompt or --token-ids");
  });
  command->footer(kGenerateFooter);
}

void AddChat(CLI::App& app, ChatOptions* options) {
  CLI::App* command = app.add_subcommand("chat", "Talk with the model");
  AddRouterOption(command, &options->generate.router);
  AddSampling(command, &options->generate);
  options->generate.max_tokens.reset();
  command->add_option("--max-tokens", options->generate.max_tokens,
                      "Stop an answer after N tokens; default: the end of the context");
  command->add_option("--system", options->system, "What the model is told before the conversation");
  command->add_flag("--json", options->generate.json, "Print each answer as one JSON object");
  command->footer(kChatFooter);
}

void AddTop(CLI::App& app, TopOptions* options) {
  CLI::App* command = app.add_subcommand("top", "Watch a cluster");
  AddRouterOption(command, &options->router);
  command->add_flag("--once", options->once, "Show one view, of --interval, and end");
  command->add_option("--interval", options->interval_s, "Seconds between two views")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  command->add_option("--window", options->window_s, "Seconds over which TTFT and TPOT are taken")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object for each view");
  command->footer(kTopFooter);
}

void AddModels(CLI::App& app, ModelsOptions* options) {
  CLI::App* command = app.add_subcommand("models", "List what is served");
  AddRouterOption(command, &options->router);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(kModelsFooter);
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
  ChatOptions chat;
  AddChat(app, &chat);
  AddStatus(app, &status);
  TopOptions top;
  AddTop(app, &top);
  ModelsOptions models;
  AddModels(app, &models);
  DrainOptions drain;
  AddDrain(app, &drain);
  TraceOptions trace;
  AddTrace(app, &trace);
  bench::BenchOptions bench;
  bench::AddBench(app, &bench);
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
  if (app.got_subcommand("chat")) return RunChat(chat);
  if (app.got_subcommand("top")) return RunTop(top);
  if (app.got_subcommand("models")) return RunModels(models);
  if (app.got_subcommand("bench")) return bench::RunBench(bench);
  if (app.got_subcommand("drain")) return RunDrain(drain);
  if (app.got_subcommand("trace")) return RunTrace(trace);
  return RunStatus(status);
}

}  // namespace sluice::cli
