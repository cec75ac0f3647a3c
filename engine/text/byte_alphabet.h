// How byte-level BPE vocabularies spell bytes: each of the 256 bytes has a printable character of its own (a space is
// "Ġ", a newline "Ċ"). The alphabet is GPT-2's: printable Latin-1 stands for itself, the other bytes follow in order
// from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::engine {

// Nothing when a character is not of the alphabet.
std::optional<std::string> BytesFromSpelling(std::string_view spelling);

std::string SpellingOfBytes(std::string_view bytes);

}  // namespace sluice::engine
