#include "engine/text/jinja/string_literal.h"

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The bytes that a one-letter escape stands for; -1: it is none.
int PlainEscape(char c) {
  switch (c) {
    case '\\':
    case '\'':
    case '"':
      return c;
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    default:
      return -1;
  }
}

void AppendCharacter(uint32_t character, int line, std::string& out) {
  if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) {
    Fail("a string has an escape that is no character", line);
  }
  AppendUtf8(character, out);
}

}  // namespace

std::string Unescape(std::string_view literal, int line) {
  std::string out;
  size_t i = 0;
  while (i < literal.size()) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i++];
      continue;
    }
    const char c = literal[i + 1];
    i += 2;
    if (c == '\n') continue;  // the line goes on
    if (const int plain = PlainEscape(c); plain >= 0) {
      out += static_cast<char>(plain);
    } else if (c >= '0' && c <= '7') {
      uint32_t character = static_cast<uint32_t>(c - '0');
      for (int digits = 1; digits < 3 && i < literal.size() && literal[i] >= '0' && literal[i] <= '7'; ++digits) {
        character = character * 8 + static_cast<uint32_t>(literal[i++] - '0');
      }
      AppendCharacter(character, line, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      uint32_t character = 0;
      for (int left = c == 'x' ? 2 : c == 'u' ? 4 : 8; left > 0; --left, ++i) {
        const int digit = i < literal.size() ? HexDigit(literal[i]) : -1;
        if (digit < 0) Fail(Concat("a string has a truncated \\", std::string(1, c), " escape"), line);
        character = character << 4 | static_cast<uint32_t>(digit);
      }
      AppendCharacter(character, line, out);
    } else if (c == 'N') {
      Fail("\\N escapes in strings are not supported", line);
    } else {
      out += '\\';  // no escape: stays as it is
      out += c;
    }
  }
  return out;
}

}  // namespace sluice::engine::jinja
