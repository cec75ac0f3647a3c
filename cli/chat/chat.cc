#include "cli/chat/chat.h"

#include <signal.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/channel.h"
#include "cli/chat/conversation.h"
#include "cli/chat/line_reader.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "proto/serving.grpc.pb.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

std::string Dump(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

class Session {
 public:
  Session(const ChatOptions& options, std::shared_ptr<grpc::Channel> channel)
      : options_(options), talk_(options.system), stub_(v1::Inference::NewStub(channel)) {}

  int Run();

 private:
  // Each returns an exit code that ends the session, or nothing.
  std::optional<int> Take(const std::string& line);
  std::optional<int> Take(const Command& command);
  std::optional<int> Ask(std::string text);
  std::optional<int> Complain(const std::string& what, int code);

  const ChatOptions& options_;
  Conversation talk_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  LineReader lines_;
  std::string begun_;  // of a question whose last line ended in a backslash
  bool continued_ = false;
};

// A person tries again; a script must hear of it.
std::optional<int> Session::Complain(const std::string& what, int code) {
  std::cerr << "sluice: " << what << "\n";
  return lines_.terminal() ? std::optional<int>() : code;
}

int Session::Run() {
  if (lines_.terminal()) std::cout << "Ctrl-D or /quit ends; /help lists more.\n";
  for (;;) {
    const Line line = lines_.Read(continued_ ? ". " : "> ");
    if (line.kind == Line::Kind::kEnd) {
      if (lines_.terminal()) std::cout << "\n";
      if (continued_) {
        if (const std::optional<int> code = Take(std::string())) return *code;
      }
      return kExitOk;
    }
    if (line.kind == Line::Kind::kSignal) {
      if (line.signal != SIGINT || !lines_.terminal()) return 128 + line.signal;
      begun_.clear();
      continued_ = false;
      continue;
    }
    if (const std::optional<int> code = Take(line.text)) return *code;
  }
}

std::optional<int> Session::Take(const std::string& line) {
  ChatInput input = ReadChatInput(line, continued_);
  if (const Command* command = std::get_if<Command>(&input)) return Take(*command);
  if (const Mistake* mistake = std::get_if<Mistake>(&input)) return Complain(mistake->what, kExitUsage);
  if (const Continue* part = std::get_if<Continue>(&input)) {
    absl::StrAppend(&begun_, part->text, "\n");
    continued_ = true;
    return std::nullopt;
  }
  std::string text = std::exchange(begun_, "") + std::get<Say>(input).text;
  continued_ = false;
  if (text.empty()) return std::nullopt;
  return Ask(std::move(text));
}

std::optional<int> Session::Take(const Command& command) {
  if (command.name == "quit") return kExitOk;
  if (command.name == "reset") talk_.Reset();
  if (command.name == "system") talk_.SetSystem(command.argument);
  if (command.name == "help") std::cout << kChatHelp << std::flush;
  if (command.name == "save") {
    std::ofstream out(command.argument, std::ios::trunc);
    if (!(out << Dump(json{{"messages", talk_.Messages()}}, 2) << "\n" << std::flush)) {
      return Complain(absl::StrCat(command.argument, ": cannot be written"), kExitUsage);
    }
  }
  return std::nullopt;
}

std::optional<int> Session::Ask(std::string text) {
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest(options_.generate);
  if (!request.ok()) return Complain(std::string(request.status().message()), kExitUsage);
  talk_.Ask(std::move(text));
  request->mutable_chat()->set_messages(Dump(talk_.Messages()));

  grpc::ClientContext context;
  std::atomic<int> signal = 0;
  Answer answer;
  absl::Status shown;
  grpc::Status status;
  {
    const Interrupt interrupt([&](int number) {
      signal = number;
      context.TryCancel();
    });
    const auto reader = stub_->Generate(&context, *request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      const std::string added = answer.Add(response);
      if (added.empty() || options_.generate.json || !shown.ok()) continue;
      shown = Print(added);
      if (!shown.ok()) context.TryCancel();
    }
    status = reader->Finish();
  }
  if (shown.ok() && !options_.generate.json && (!answer.text().empty() || status.ok())) shown = Print("\n");
  if (!shown.ok()) {
    std::cerr << "sluice: " << shown.message() << "\n";
    return kExitServer;
  }
  if (signal != 0) {
    // What was heard counts, as it does among people.
    talk_.Answer(answer.text());
    if (signal != SIGINT || !lines_.terminal()) return 128 + signal;
    return std::nullopt;
  }
  if (!status.ok()) {
    talk_.TakeBack();
    return Complain(DescribeError(status), ExitCodeFor(status));
  }
  talk_.Answer(answer.text());
  if (options_.generate.json) shown = Print(Dump(answer.ToJson()) + "\n");
  if (options_.generate.stats) std::cerr << answer.Stats(std::nullopt);
  return shown.ok() ? std::optional<int>() : kExitServer;
}

}  // namespace

int RunChat(const ChatOptions& options) {
  Interrupt::Block();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.generate.router, absl::Seconds(5));
  if (!channel.ok()) {
    std::cerr << "sluice: " << channel.status().message() << "\n";
    return kExitServer;
  }
  return Session(options, *std::move(channel)).Run();
}

}  // namespace sluice::cli
