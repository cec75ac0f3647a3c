#include "cli/chat/conversation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kCommands[] = {"reset", "system", "save", "quit", "help"};

ChatInput ReadCommand(std::string_view line) {
  line.remove_prefix(1);
  const size_t end = line.find(' ');
  Command command{std::string(line.substr(0, end)), ""};
  if (end != std::string_view::npos) {
    command.argument = std::string(absl::StripAsciiWhitespace(std::string(line.substr(end + 1))));
  }
  if (std::find(std::begin(kCommands), std::end(kCommands), command.name) == std::end(kCommands)) {
    return Mistake{absl::StrCat("there is no /", command.name, "; /help lists what there is")};
  }
  if (command.name == "save" && command.argument.empty()) return Mistake{"/save needs a file"};
  return command;
}

}  // namespace

nlohmann::json Conversation::Messages() const {
  nlohmann::json messages = nlohmann::json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  for (const Turn& turn : turns_) messages.push_back({{"role", turn.role}, {"content", turn.text}});
  return messages;
}

ChatInput ReadChatInput(std::string_view line, bool continued) {
  if (!continued && !line.empty() && line.front() == '/') {
    if (line.substr(0, 2) != "//") return ReadCommand(line);
    line.remove_prefix(1);
  }
  if (!line.empty() && line.back() == '\\') return Continue{std::string(line.substr(0, line.size() - 1))};
  return Say{std::string(line)};
}

}  // namespace sluice::cli
