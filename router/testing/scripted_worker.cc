// A worker that computes nothing and says a given text, for tests of the router as a process: FakeWorker on a command
// line.
//
//   scripted_worker --model FILE --router-port PORT --text "..." [--delay-ms N] [--step-ms N] [--tokens-per-message N]
//
// It answers every request with the text's tokens, over and over up to max_tokens; a client ends it with a stop string.
#include <signal.h>

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "engine/files/model_file.h"
#include "engine/text/tokenizer.h"
#include "router/testing/fake_worker.h"

namespace sluice::router {
namespace {

int Main(int argc, char** argv) {
  std::string model, text;
  int router_port = 0, delay_ms = 0;
  double step_ms = 0.2;
  FakeScript script;
  FakeWorkerOptions options;
  CLI::App app("A worker that says a given text", "scripted_worker");
  app.add_option("--model", model)->required();
  app.add_option("--router-port", router_port)->required();
  app.add_option("--text", text)->required();
  app.add_option("--delay-ms", delay_ms);
  app.add_option("--step-ms", step_ms);
  app.add_option("--tokens-per-message", script.tokens_per_message);
  app.add_option("--max-running", options.max_running);
  CLI11_PARSE(app, argc, argv);

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto file = engine::OpenModel(model);
  if (!file.ok()) return std::fprintf(stderr, "%s\n", std::string(file.status().message()).c_str()), 1;
  const auto tokenizer = engine::Tokenizer::Create((*file)->tokenizer());
  if (!tokenizer.ok()) return std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str()), 1;
  script.ids = (*tokenizer)->Encode(text, engine::SpecialText::kParse, false);
  script.delay = absl::Milliseconds(delay_ms);
  options.step = absl::Milliseconds(step_ms);
  options.model_hash = (*file)->ContentHash();
  FakeWorker worker(options, script, router_port);
  std::printf("sluice_scripted ready: port=%d\n", worker.port());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}

}  // namespace
}  // namespace sluice::router

int main(int argc, char** argv) {
  return sluice::router::Main(argc, argv);
}
