// What string methods and filters do to a text: each keeps the origin of the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/jinja/environment.h"
#include "engine/text/jinja/text.h"

namespace sluice::engine::jinja {

enum class Side : uint8_t { kLeft, kRight, kBoth };
// Without `characters`: white space.
Text Strip(const Text& text, Side side, const std::optional<std::string_view>& characters);

enum class Case : uint8_t { kUpper, kLower, kCapitalize, kPythonTitle, kJinjaTitle, kSwap };
Text ChangeCase(const Text& text, Case kind);

// count < 0: all.
Text Replace(Environment& env, const Text& text, const Text& from, const Text& to, int64_t count);

// At most `most` cuts (< 0: any number), from the left or from the right.
std::vector<Text> SplitAt(const Text& text, std::string_view separator, int64_t most, bool from_right);
std::vector<Text> SplitAtSpace(const Text& text, int64_t most, bool from_right);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);

// In characters, spaces around.
Text Pad(Environment& env, const Text& text, int64_t width, Side side, const Text& fill);
Text Center(Environment& env, const Text& text, int64_t width, const Text& fill);

// & < > ' " as HTML.
Text EscapeHtml(const Text& text);

}  // namespace sluice::engine::jinja
