// Values as Python's json.dumps writes them.
#pragma once

#include <optional>

#include "engine/text/jinja/environment.h"
#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

struct JsonStyle {
  std::optional<Text> indent;  // of one level; absent: all on one line
  Text item_separator;         // ", ", and "," with an indent
  Text key_separator;          // ": "
  bool ensure_ascii = false;
  bool sort_keys = false;
};

// Texts keep the origin of their bytes; the marks around them count as of the conversation.
Text ToJson(Environment& env, const Value& value, const JsonStyle& style);

// The filter's arguments: ensure_ascii, indent, separators, sort_keys.
struct Arguments;
JsonStyle JsonStyleFrom(Environment& env, const Arguments& arguments);

}  // namespace sluice::engine::jinja
