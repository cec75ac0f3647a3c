// Walks bytes that may or may not be UTF-8, one step at a time.
//
// Promises: a step never reads past the end, always advances, and agrees with Unicode's "maximal subpart" practice
// (chapter 3.9): where a decoder would emit one U+FFFD, there is one invalid step.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::engine {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  kCharacter,   // a well-formed character
  kInvalid,     // a maximal subpart of an ill-formed sequence
  kIncomplete,  // the text ends here, and more bytes could still complete a character
};

struct Utf8Step {
  size_t length;  // bytes, 1 to 4
  Utf8Kind kind;
};

// `text` must not be empty.
Utf8Step NextUtf8(std::string_view text);

// Bytes at the end of `text` that begin a character but don't complete it: 0 to 3.
size_t IncompleteTail(std::string_view text);

// The length of the longest well-formed prefix.
size_t ValidPrefix(std::string_view text);

}  // namespace sluice::engine
