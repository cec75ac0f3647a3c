#include "engine/text/jinja/unicode.h"

#include <locale.h>
#include <wctype.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>

namespace sluice::engine::jinja {
namespace {

// Capitals of several letters, by the small one.
struct Expansion {
  uint32_t character;
  const char* upper;
};
constexpr Expansion kExpansions[] = {
    {0x00DF, "\u0053\u0053"},       {0x0149, "\u02BC\u004E"},       {0x01F0, "\u004A\u030C"},
    {0x0390, "\u0399\u0308\u0301"}, {0x03B0, "\u03A5\u0308\u0301"}, {0x0587, "\u0535\u0552"},
    {0x1E96, "\u0048\u0331"},       {0x1E97, "\u0054\u0308"},       {0x1E98, "\u0057\u030A"},
    {0x1E99, "\u0059\u030A"},       {0x1E9A, "\u0041\u02BE"},       {0x1F50, "\u03A5\u0313"},
    {0x1F52, "\u03A5\u0313\u0300"}, {0x1F54, "\u03A5\u0313\u0301"}, {0x1F56, "\u03A5\u0313\u0342"},
    {0x1F80, "\u1F08\u0399"},       {0x1F81, "\u1F09\u0399"},       {0x1F82, "\u1F0A\u0399"},
    {0x1F83, "\u1F0B\u0399"},       {0x1F84, "\u1F0C\u0399"},       {0x1F85, "\u1F0D\u0399"},
    {0x1F86, "\u1F0E\u0399"},       {0x1F87, "\u1F0F\u0399"},       {0x1F88, "\u1F08\u0399"},
    {0x1F89, "\u1F09\u0399"},       {0x1F8A, "\u1F0A\u0399"},       {0x1F8B, "\u1F0B\u0399"},
    {0x1F8C, "\u1F0C\u0399"},       {0x1F8D, "\u1F0D\u0399"},       {0x1F8E, "\u1F0E\u0399"},
    {0x1F8F, "\u1F0F\u0399"},       {0x1F90, "\u1F28\u0399"},       {0x1F91, "\u1F29\u0399"},
    {0x1F92, "\u1F2A\u0399"},       {0x1F93, "\u1F2B\u0399"},       {0x1F94, "\u1F2C\u0399"},
    {0x1F95, "\u1F2D\u0399"},       {0x1F96, "\u1F2E\u0399"},       {0x1F97, "\u1F2F\u0399"},
    {0x1F98, "\u1F28\u0399"},       {0x1F99, "\u1F29\u0399"},       {0x1F9A, "\u1F2A\u0399"},
    {0x1F9B, "\u1F2B\u0399"},       {0x1F9C, "\u1F2C\u0399"},       {0x1F9D, "\u1F2D\u0399"},
    {0x1F9E, "\u1F2E\u0399"},       {0x1F9F, "\u1F2F\u0399"},       {0x1FA0, "\u1F68\u0399"},
    {0x1FA1, "\u1F69\u0399"},       {0x1FA2, "\u1F6A\u0399"},       {0x1FA3, "\u1F6B\u0399"},
    {0x1FA4, "\u1F6C\u0399"},       {0x1FA5, "\u1F6D\u0399"},       {0x1FA6, "\u1F6E\u0399"},
    {0x1FA7, "\u1F6F\u0399"},       {0x1FA8, "\u1F68\u0399"},       {0x1FA9, "\u1F69\u0399"},
    {0x1FAA, "\u1F6A\u0399"},       {0x1FAB, "\u1F6B\u0399"},       {0x1FAC, "\u1F6C\u0399"},
    {0x1FAD, "\u1F6D\u0399"},       {0x1FAE, "\u1F6E\u0399"},       {0x1FAF, "\u1F6F\u0399"},
    {0x1FB2, "\u1FBA\u0399"},       {0x1FB3, "\u0391\u0399"},       {0x1FB4, "\u0386\u0399"},
    {0x1FB6, "\u0391\u0342"},       {0x1FB7, "\u0391\u0342\u0399"}, {0x1FBC, "\u0391\u0399"},
    {0x1FC2, "\u1FCA\u0399"},       {0x1FC3, "\u0397\u0399"},       {0x1FC4, "\u0389\u0399"},
    {0x1FC6, "\u0397\u0342"},       {0x1FC7, "\u0397\u0342\u0399"}, {0x1FCC, "\u0397\u0399"},
    {0x1FD2, "\u0399\u0308\u0300"}, {0x1FD3, "\u0399\u0308\u0301"}, {0x1FD6, "\u0399\u0342"},
    {0x1FD7, "\u0399\u0308\u0342"}, {0x1FE2, "\u03A5\u0308\u0300"}, {0x1FE3, "\u03A5\u0308\u0301"},
    {0x1FE4, "\u03A1\u0313"},       {0x1FE6, "\u03A5\u0342"},       {0x1FE7, "\u03A5\u0308\u0342"},
    {0x1FF2, "\u1FFA\u0399"},       {0x1FF3, "\u03A9\u0399"},       {0x1FF4, "\u038F\u0399"},
    {0x1FF6, "\u03A9\u0342"},       {0x1FF7, "\u03A9\u0342\u0399"}, {0x1FFC, "\u03A9\u0399"},
    {0xFB00, "\u0046\u0046"},       {0xFB01, "\u0046\u0049"},       {0xFB02, "\u0046\u004C"},
    {0xFB03, "\u0046\u0046\u0049"}, {0xFB04, "\u0046\u0046\u004C"}, {0xFB05, "\u0053\u0054"},
    {0xFB06, "\u0053\u0054"},       {0xFB13, "\u0544\u0546"},       {0xFB14, "\u0544\u0535"},
    {0xFB15, "\u0544\u053B"},       {0xFB16, "\u054E\u0546"},       {0xFB17, "\u0544\u053D"},
};

locale_t Utf8Locale() {
  static const locale_t kLocale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return kLocale;
}

bool MatchesPattern(const pcre2_code* pattern, uint32_t character) {
  std::string text;
  AppendUtf8(character, text);
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  const int found = pcre2_match(pattern, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, PCRE2_NO_UTF_CHECK,
                                data, nullptr);
  pcre2_match_data_free(data);
  return found >= 0;
}

const pcre2_code* Compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at,
                       nullptr);
}

}  // namespace

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  static const pcre2_code* const kHidden = Compile("[\\p{C}\\p{Z}]");
  return !MatchesPattern(kHidden, c);
}

bool IsLetter(uint32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  static const pcre2_code* const kLetter = Compile("\\p{L}");
  return MatchesPattern(kLetter, c);
}

bool IsDecimalDigit(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  static const pcre2_code* const kDigit = Compile("\\p{Nd}");
  return MatchesPattern(kDigit, c);
}

bool IsUpper(uint32_t c) {
  return iswupper_l(static_cast<wint_t>(c), Utf8Locale()) != 0;
}
bool IsLower(uint32_t c) {
  return iswlower_l(static_cast<wint_t>(c), Utf8Locale()) != 0;
}

Character CharacterAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0u; };
  const uint32_t lead = byte(0);
  if (lead < 0xC0) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

size_t CharacterBefore(std::string_view text, size_t end) {
  --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

void AppendUtf8(uint32_t c, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

void AppendUpper(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    return;
  }
  const auto* const found = std::lower_bound(std::begin(kExpansions), std::end(kExpansions), c,
                                             [](const Expansion& e, uint32_t value) { return e.character < value; });
  if (found != std::end(kExpansions) && found->character == c) {
    out += found->upper;
  } else {
    AppendUtf8(static_cast<uint32_t>(towupper_l(static_cast<wint_t>(c), Utf8Locale())), out);
  }
}

void AppendLower(uint32_t c, std::string& out) {
  if (c == 0x130) {  // a capital I with a dot: its small letter is two characters
    out += "i\u0307";
  } else if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else {
    AppendUtf8(static_cast<uint32_t>(towlower_l(static_cast<wint_t>(c), Utf8Locale())), out);
  }
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

size_t ByteOfCharacter(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CharacterAt(text, at).length;
  return std::min(at, text.size());
}

size_t LeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character c = CharacterAt(text, at);
    if (!IsSpace(c.value)) break;
    at += c.length;
  }
  return at;
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = CharacterBefore(text, end);
    if (!IsSpace(CharacterAt(text, begin).value)) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace sluice::engine::jinja
