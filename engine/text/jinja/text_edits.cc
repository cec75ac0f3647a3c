#include "engine/text/jinja/text_edits.h"

#include <algorithm>
#include <string>

#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

// Whether the character at `at` is one of `set`.
bool IsOneOf(std::string_view text, size_t at, std::string_view set) {
  const std::string_view character = text.substr(at, CharacterAt(text, at).length);
  for (size_t found = set.find(character); found != std::string_view::npos; found = set.find(character, found + 1)) {
    if (CharacterAt(set, found).length == character.size()) return true;
  }
  return false;
}

bool IsCased(uint32_t c) {
  return IsUpper(c) || IsLower(c);
}

bool EndsWord(uint32_t c) {
  return IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
}

bool IsLineEnd(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

Text Strip(const Text& text, Side side, const std::optional<std::string_view>& characters) {
  const std::string_view bytes = text.bytes();
  if (!characters.has_value()) {
    const size_t begin = side == Side::kRight ? 0 : LeadingSpace(bytes);
    const size_t end = side == Side::kLeft ? 0 : TrailingSpace(bytes.substr(begin));
    return text.Sub(begin, bytes.size() - end);
  }
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end && IsOneOf(bytes, begin, *characters)) {
    begin += CharacterAt(bytes, begin).length;
  }
  while (side != Side::kLeft && end > begin && IsOneOf(bytes, CharacterBefore(bytes, end), *characters)) {
    end = CharacterBefore(bytes, end);
  }
  return text.Sub(begin, end);
}

Text ChangeCase(const Text& text, Case kind) {
  Text out;
  const std::string& bytes = text.bytes();
  std::string changed;
  bool in_word = false;  // title: the next letter is small; capitalize: the first character is done
  for (size_t at = 0; at < bytes.size();) {
    const Character c = CharacterAt(bytes, at);
    changed.clear();
    const bool upper = kind == Case::kUpper || (kind == Case::kSwap && IsLower(c.value)) ||
                       (kind >= Case::kCapitalize && kind <= Case::kJinjaTitle && !in_word);
    upper ? AppendUpper(c.value, changed) : AppendLower(c.value, changed);
    out.Append(changed, text.OriginAt(at));
    in_word = kind == Case::kPythonTitle ? IsCased(c.value) : kind == Case::kJinjaTitle ? !EndsWord(c.value) : true;
    at += c.length;
  }
  return out;
}

Text Replace(Environment& env, const Text& text, const Text& from, const Text& to, int64_t count) {
  const std::string& bytes = text.bytes();
  env.budget().StepBytes(bytes.size());
  Text out;
  size_t at = 0;
  const auto check = [&] {
    env.budget().StepBytes(to.size());
    if (out.size() > env.budget().limits().live_bytes / 4) {
      throw Error{ErrorKind::kLimit, "the chat template needs too much memory"};
    }
  };
  if (from.empty()) {  // before every character, and at the end
    for (; count != 0; --count) {
      check();
      out.Append(to);
      if (at >= bytes.size()) break;
      const size_t end = at + CharacterAt(bytes, at).length;
      out.Append(text, at, end);
      at = end;
    }
    out.Append(text, std::min(at, bytes.size()), bytes.size());
    return out;
  }
  for (; count != 0; --count) {
    const size_t found = bytes.find(from.bytes(), at);
    if (found == std::string::npos) break;
    check();
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.size();
  }
  out.Append(text, at, bytes.size());
  return out;
}

std::vector<Text> SplitAt(const Text& text, std::string_view separator, int64_t most, bool from_right) {
  const std::string& bytes = text.bytes();
  std::vector<Text> parts;
  if (!from_right) {
    size_t at = 0;
    for (; most != 0; --most) {
      const size_t found = bytes.find(separator, at);
      if (found == std::string::npos) break;
      parts.push_back(text.Sub(at, found));
      at = found + separator.size();
    }
    parts.push_back(text.Sub(at, bytes.size()));
    return parts;
  }
  size_t end = bytes.size();
  for (; most != 0 && end >= separator.size(); --most) {
    const size_t found = bytes.rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    parts.push_back(text.Sub(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.Sub(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitAtSpace(const Text& text, int64_t most, bool from_right) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  size_t begin = LeadingSpace(bytes);
  size_t end = bytes.size() - TrailingSpace(bytes.substr(begin));
  if (!from_right) {
    end = bytes.size();
    while (begin < end) {
      size_t word = begin;
      if (most == 0) {
        word = end;  // the rest as it is
      } else {
        while (word < end && !IsSpace(CharacterAt(bytes, word).value)) word += CharacterAt(bytes, word).length;
      }
      parts.push_back(text.Sub(begin, word));
      --most;
      begin = word + LeadingSpace(bytes.substr(word));
    }
    return parts;
  }
  while (end > 0 && end > LeadingSpace(bytes)) {
    size_t word = end;
    if (most == 0) {
      word = 0;
    } else {
      while (word > 0 && !IsSpace(CharacterAt(bytes, CharacterBefore(bytes, word)).value)) {
        word = CharacterBefore(bytes, word);
      }
    }
    parts.push_back(text.Sub(word, end));
    --most;
    end = word - TrailingSpace(bytes.substr(0, word));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  const std::string& bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Character c = CharacterAt(bytes, at);
    const size_t end = at;
    at += c.length;
    if (!IsLineEnd(c.value)) continue;
    if (c.value == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.Sub(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Sub(begin, bytes.size()));
  return lines;
}

namespace {

void Fill(Environment& env, int64_t count, const Text& fill, Text& out) {
  if (count > 0 && static_cast<uint64_t>(count) > env.budget().limits().live_bytes / 8) {
    throw Error{ErrorKind::kLimit, "the chat template needs too much memory"};
  }
  for (int64_t i = 0; i < count; ++i) out.Append(fill);
}

}  // namespace

Text Pad(Environment& env, const Text& text, int64_t width, Side side, const Text& fill) {
  const int64_t missing = width - static_cast<int64_t>(CountCharacters(text.bytes()));
  Text out;
  if (side == Side::kLeft) Fill(env, missing, fill, out);
  out.Append(text);
  if (side == Side::kRight) Fill(env, missing, fill, out);
  return out;
}

Text Center(Environment& env, const Text& text, int64_t width, const Text& fill) {
  const int64_t missing = std::max<int64_t>(0, width - static_cast<int64_t>(CountCharacters(text.bytes())));
  const int64_t left = missing / 2 + (missing & width & 1);  // Python's rounding
  Text out;
  Fill(env, left, fill, out);
  out.Append(text);
  Fill(env, missing - left, fill, out);
  return out;
}

Text EscapeHtml(const Text& text) {
  Text out;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    const char c = bytes[at];
    const char* const escape = c == '&'    ? "&amp;"
                               : c == '<'  ? "&lt;"
                               : c == '>'  ? "&gt;"
                               : c == '\'' ? "&#39;"
                               : c == '"'  ? "&#34;"
                                           : nullptr;
    if (escape == nullptr) {
      out.Append(text, at, at + 1);
    } else {
      out.Append(escape, text.OriginAt(at));
    }
  }
  return out;
}

}  // namespace sluice::engine::jinja
