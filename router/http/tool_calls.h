// Finds tool calls in the text of an answer, as it comes. Pure.
//
// Promises: text that is no call reaches the client unchanged and in order; what may still become the mark of a call is
// held back until that is known; a call that is broken JSON, or never ends, is text after all. Calls have the arguments
// as the model spelled them. How they are spelled depends on the model's template:
//   kHermes (Qwen2.5 and others): <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them
//   kLlama3: the whole answer is {"name": ..., "parameters": {...}}, several with `;` between, after <|python_tag|> or
//   not kMistral: [TOOL_CALLS] and an array of {"name": ..., "arguments": {...}}, to the end of the answer; a mark that
//   is a
//     control token has no text, so an answer that begins with `[{"name"` counts as one, too
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_template.h"

namespace sluice::router {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

class ToolCallParser {
 public:
  explicit ToolCallParser(engine::ToolCallStyle style);

  struct Found {
    std::string text;
    std::vector<ToolCall> calls;
  };
  Found Add(std::string_view text);
  Found Finish();  // the answer's end: what was held back

 private:
  Found TakeHermes(bool end);
  Found TakeWhole();

  const engine::ToolCallStyle style_;
  bool plain_ = false;  // no call can come any more (kLlama3, kMistral)
  bool after_call_ = false;
  std::string held_;
};

}  // namespace sluice::router
