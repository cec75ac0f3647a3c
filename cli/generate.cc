#include "cli/generate.h"

#include <atomic>
#include <chrono>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/answer.h"
#include "cli/channel.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "proto/serving.grpc.pb.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

int Fail(const std::string& message, int code) {
  std::cerr << "sluice: " << message << "\n";
  return code;
}

// Reads the stream to its end and shows text as it comes. When it cannot be shown (a closed pipe, a full disk) the call
// is cancelled, and `shown` says why.
std::optional<double> ReadStream(grpc::ClientReader<v1::GenerateResponse>& reader, grpc::ClientContext& context,
                                 bool show, Clock::time_point start, Answer& answer, absl::Status& shown) {
  std::optional<double> first_text_ms;
  v1::GenerateResponse response;
  while (reader.Read(&response)) {
    const std::string added = answer.Add(response);
    if (added.empty()) continue;
    if (!first_text_ms) first_text_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (!show || !shown.ok()) continue;
    shown = Print(added);
    if (!shown.ok()) context.TryCancel();
  }
  return first_text_ms;
}

struct Outcome {
  grpc::Status status;
  Answer answer;
  absl::Status shown;
  std::optional<double> first_text_ms;
};

// One call, which `interrupted` (a signal's number) ends.
Outcome Ask(v1::Inference::Stub& stub, const v1::GenerateRequest& request, bool show, std::atomic<int>& interrupted) {
  grpc::ClientContext context;
  const Interrupt interrupt([&](int signal) {
    interrupted = signal;
    context.TryCancel();
  });
  if (request.has_timeout_ms()) {
    // The router ends the request on time and says so; this is for a router that does not.
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(int64_t{request.timeout_ms()} + 2000));
  }
  Outcome outcome;
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader = stub.Generate(&context, request);
  outcome.first_text_ms = ReadStream(*reader, context, show, start, outcome.answer, outcome.shown);
  outcome.status = reader->Finish();
  return outcome;
}

}  // namespace

int RunGenerate(GenerateOptions options) {
  if (options.prompt == "-") {
    options.prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest(options);
  if (!request.ok()) return Fail(std::string(request.status().message()), kExitUsage);

  Interrupt::Block();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.router, absl::Seconds(5));
  if (!channel.ok()) return Fail(std::string(channel.status().message()), kExitServer);
  const std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(*channel);
  const bool several = request->sampling().n() > 1;
  const bool show_text = !options.json && !several;
  std::atomic<int> interrupted = 0;
  Outcome outcome = Ask(*stub, *request, show_text, interrupted);
  if (interrupted == 0 && request->has_chat() && HasNoTemplate(outcome.status.error_message())) {
    request->set_text(options.prompt);
    outcome = Ask(*stub, *request, show_text, interrupted);
  }

  const Answer& answer = outcome.answer;
  absl::Status shown = outcome.shown;
  if (shown.ok() && show_text && !answer.text().empty()) shown = Print("\n");
  if (interrupted != 0) return 128 + interrupted;
  if (!shown.ok()) return Fail(std::string(shown.message()), kExitServer);
  if (!outcome.status.ok()) return Fail(DescribeError(outcome.status), ExitCodeFor(outcome.status));
  if (options.json || several) {
    shown = Print(options.json ? answer.ToJson().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
                               : answer.AllTexts());
    if (!shown.ok()) return Fail(std::string(shown.message()), kExitServer);
  }
  if (options.stats) std::cerr << answer.Stats(outcome.first_text_ms);
  return kExitOk;
}

}  // namespace sluice::cli
