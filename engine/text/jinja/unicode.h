// Characters as Python's str sees them: white space, letter case, what repr() prints.
//
// Limits: the letters' case is that of the C library's tables (Unicode 14 on Debian 12, as Python 3.11's) with the 102
// capitals of several letters ("SS"); a sigma at the end of a word becomes σ, not ς.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::engine::jinja {

// All texts are well-formed UTF-8.

bool IsSpace(uint32_t character);
bool IsPrintable(uint32_t character);
bool IsUpper(uint32_t character);
bool IsLower(uint32_t character);
bool IsLetter(uint32_t character);
bool IsDecimalDigit(uint32_t character);

struct Character {
  uint32_t value;
  size_t length;  // in bytes
};
Character CharacterAt(std::string_view text, size_t at);
// The beginning of the character that ends before `end`.
size_t CharacterBefore(std::string_view text, size_t end);

void AppendUtf8(uint32_t character, std::string& out);
void AppendUpper(uint32_t character, std::string& out);
void AppendLower(uint32_t character, std::string& out);

size_t CountCharacters(std::string_view text);
// The byte at which character `index` begins, or the end.
size_t ByteOfCharacter(std::string_view text, size_t index);

// Bytes of white space at the beginning, and at the end.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

}  // namespace sluice::engine::jinja
