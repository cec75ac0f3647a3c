// What can be told of a chat template by looking at it: what it expects of messages, how its model calls tools.
#pragma once

#include <string_view>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/ast.h"

namespace sluice::engine {

struct TemplateTraits {
  bool loops_over_content = false;  // a loop over message.content, or over a variable that it was assigned to
  bool asks_for_strings = false;    // tests some value for being a string
  bool knows_tool_calls = false;    // reads message.tool_calls
  bool arguments_as_text = false;   // writes the arguments of a call as they are, never through tojson
};

TemplateTraits TraitsOf(const jinja::Program& program);

ToolCallStyle ToolCallStyleOf(std::string_view source);

}  // namespace sluice::engine
