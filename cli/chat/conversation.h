// A conversation as ChatPrompt carries it, and what a person types into one. Pure.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nlohmann/json.hpp"

namespace sluice::cli {

class Conversation {
 public:
  explicit Conversation(std::string system) : system_(std::move(system)) {}

  // Empty: without a system message. What was said stays.
  void SetSystem(std::string text) { system_ = std::move(text); }
  // Nothing was said; the system message stays.
  void Reset() { turns_.clear(); }

  void Ask(std::string text) { turns_.push_back({"user", std::move(text)}); }
  void Answer(std::string text) { turns_.push_back({"assistant", std::move(text)}); }
  // Takes the last question back, which got no answer.
  void TakeBack() { turns_.pop_back(); }

  bool empty() const { return turns_.empty(); }
  // [{"role": ..., "content": ...}, ...]
  nlohmann::json Messages() const;

 private:
  struct Turn {
    std::string role, text;
  };
  std::string system_;
  std::vector<Turn> turns_;
};

// One line of input.
struct Say {
  std::string text;
};
struct Continue {  // a line that ends in a backslash: the next one belongs to it
  std::string text;
};
struct Command {
  std::string name;      // reset, system, save, quit, help
  std::string argument;  // rest of the line
};
struct Mistake {
  std::string what;
};
using ChatInput = std::variant<Say, Continue, Command, Mistake>;

// "/reset", "/system TEXT", "/save FILE", "/quit", "/help"; "//x" says "/x". `continued`: the line goes on with one
// before it, and is no command whatever it begins with.
ChatInput ReadChatInput(std::string_view line, bool continued);

inline constexpr char kChatHelp[] =
    "/reset         forget what was said\n"
    "/system TEXT   set the system message; without TEXT there is none\n"
    "/save FILE     write the conversation as JSON\n"
    "/quit          end (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one; // at its beginning says /.\n";

}  // namespace sluice::cli
