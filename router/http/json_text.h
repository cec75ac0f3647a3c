// Writes the JSON text of a value from a parser's events: of a field whose value somebody else reads. Pure.
//
// Promises: the text is valid JSON with the members in their order; what nests deeper than kMaxJsonDepth is refused, so
// that no reader of it runs out of stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/http/json_value.h"

namespace sluice::router {

inline constexpr size_t kMaxJsonDepth = 64;

class JsonText {
 public:
  // False: too deep.
  [[nodiscard]] bool Open(char bracket);  // '{' or '['
  void Close(char bracket);
  void Key(std::string_view name);
  void Scalar(const JsonValue& value, std::string_view number);  // number: a double as it was spelled

  std::string Take();

 private:
  void Separate();

  std::string text_;
  size_t depth_ = 0;
  bool first_ = true;  // of the open object or array
};

}  // namespace sluice::router
