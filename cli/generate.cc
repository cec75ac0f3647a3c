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

}  // namespace

int RunGenerate(GenerateOptions options) {
  if (options.prompt == "-") {
    options.prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest(options);
  if (!request.ok()) return Fail(std::string(request.status().message()), kExitUsage);

  Interrupt::Block();
  grpc::ClientContext context;
  std::atomic<int> interrupted = 0;
  Interrupt interrupt([&](int signal) {
    interrupted = signal;
    context.TryCancel();
  });
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.router, absl::Seconds(5));
  if (!channel.ok()) return Fail(std::string(channel.status().message()), kExitServer);
  if (request->has_timeout_ms()) {
    // The router ends the request on time and says so; this is for a router that does not.
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(int64_t{request->timeout_ms()} + 2000));
  }

  std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(*channel);
  Answer answer;
  const Clock::time_point start = Clock::now();
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader = stub->Generate(&context, *request);
  absl::Status shown;
  const bool several = request->sampling().n() > 1;
  const bool show_text = !options.json && !several;
  const std::optional<double> first_text_ms = ReadStream(*reader, context, show_text, start, answer, shown);
  const grpc::Status status = reader->Finish();

  if (shown.ok() && show_text && !answer.text().empty()) shown = Print("\n");
  if (interrupted != 0) return 128 + interrupted;
  if (!shown.ok()) return Fail(std::string(shown.message()), kExitServer);
  if (!status.ok()) return Fail(DescribeError(status), ExitCodeFor(status));
  if (options.json || several) {
    shown = Print(options.json ? answer.ToJson().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
                               : answer.AllTexts());
    if (!shown.ok()) return Fail(std::string(shown.message()), kExitServer);
  }
  if (options.stats) std::cerr << answer.Stats(first_text_ms);
  return kExitOk;
}

}  // namespace sluice::cli
