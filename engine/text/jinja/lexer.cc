#include "engine/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/string_literal.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool IsNamePart(char c) {
  return IsNameStart(c) || IsDigit(c);
}

// All newlines become \n, and one at the end goes.
std::string NormalNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalNewlines(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) LexOutside();
    Add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  bool Sees(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void Add(TokenKind kind, std::string text = {}) { tokens_.push_back({kind, std::move(text), line_}); }

  // Moves on and counts lines.
  void Skip(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + bytes, '\n'));
    at_ += bytes;
  }
  void SkipSpace() { Skip(LeadingSpace(std::string_view(source_).substr(at_))); }

  // The text before a tag that begins at `tag`, less the white space that the tag takes away.
  std::string_view TextBefore(size_t tag, char sign, bool is_output) const {
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') return text.substr(0, text.size() - TrailingSpace(text));
    if (sign == '+' || is_output) return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    const std::string_view indent = text.substr(line);
    return LeadingSpace(indent) == indent.size() ? text.substr(0, line) : text;
  }

  // Past `end` ("%}"), with a sign before it and the white space that it takes away. False if it isn't there.
  bool SkipTagEnd(std::string_view end, bool trims_newline) {
    if (Peek() == '-' && std::string_view(source_).substr(at_ + 1).starts_with(end)) {
      const size_t begin = at_;
      Skip(3);
      SkipSpace();
      line_starting_ = source_[at_ - 1] == '\n' && at_ > begin;
      return true;
    }
    const bool keeps = trims_newline && Peek() == '+' && std::string_view(source_).substr(at_ + 1).starts_with(end);
    if (!keeps && !Sees(end)) return false;
    Skip(keeps ? 3 : 2);
    line_starting_ = false;
    if (!keeps && trims_newline && Peek() == '\n') {
      Skip(1);
      line_starting_ = true;
    }
    return true;
  }

  size_t FindTag() const {
    size_t tag = at_;
    for (; (tag = source_.find('{', tag)) != std::string::npos; ++tag) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return tag;
    }
    return source_.size();
  }

  void LexOutside() {
    const size_t tag = FindTag();
    const char kind = tag < source_.size() ? source_[tag + 1] : '\0';
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const std::string text(kind == '\0' ? std::string_view(source_).substr(at_)
                                        : TextBefore(tag, sign, /*is_output=*/kind == '{'));
    if (!text.empty()) Add(TokenKind::kText, text);
    Skip(tag - at_);
    if (kind == '\0') return;
    if (kind == '%' && SkipRawBegin()) return LexRaw();
    Skip(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return SkipComment();
    LexTag(/*is_output=*/kind == '{');
  }

  void SkipComment() {
    const int begin = line_;
    while (at_ < source_.size()) {
      if (SkipTagEnd("#}", /*trims_newline=*/true)) return;
      Skip(1);
    }
    Fail("Missing end of comment tag", begin);
  }

  // Past {% raw %}; false, and nowhere, if another tag is here.
  bool SkipRawBegin() {
    const size_t begin = at_;
    const int line = line_;
    Skip(Peek(2) == '-' || Peek(2) == '+' ? 3 : 2);
    SkipSpace();
    if (Sees("raw")) {
      Skip(3);
      SkipSpace();
      if (SkipTagEnd("%}", /*trims_newline=*/false)) return true;
    }
    at_ = begin;
    line_ = line;
    return false;
  }

  void LexRaw() {
    const int begin = line_;
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      size_t at = tag + (sign == '-' || sign == '+' ? 3 : 2);
      at += LeadingSpace(std::string_view(source_).substr(at));
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at += 6;
      at += LeadingSpace(std::string_view(source_).substr(at));
      const std::string_view rest = std::string_view(source_).substr(at);
      if (!rest.starts_with("%}") && !rest.starts_with("-%}") && !rest.starts_with("+%}")) continue;
      const std::string text(TextBefore(tag, sign, /*is_output=*/false));
      if (!text.empty()) Add(TokenKind::kText, text);
      Skip(at - at_);
      SkipTagEnd("%}", /*trims_newline=*/true);
      return;
    }
    Fail("Missing end of raw directive", begin);
  }

  void LexTag(bool is_output) {
    const int begin = line_;
    Add(is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin);
    std::string open;  // brackets that wait for their ends
    while (true) {
      SkipSpace();
      if (at_ >= source_.size()) Fail("the template ends inside a tag", begin);
      if (open.empty()) {
        const int line = line_;
        if (SkipTagEnd(is_output ? "}}" : "%}", /*trims_newline=*/!is_output)) {
          tokens_.push_back({is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, {}, line});
          return;
        }
      }
      LexInside(open);
    }
  }

  void LexInside(std::string& open) {
    const char c = Peek();
    if (c == '\'' || c == '"') return LexString();
    if (IsDigit(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t length = 1;
      while (IsNamePart(Peek(length))) ++length;
      Add(TokenKind::kName, source_.substr(at_, length));
      return Skip(length);
    }
    LexOperator(open);
  }

  void LexString() {
    const char quote = Peek();
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("a string does not end", line_);
    Add(TokenKind::kString, Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    Skip(end + 1 - at_);
  }

  // Digits, single underscores between them allowed.
  size_t DigitsAt(size_t at, std::string_view digits) const {
    size_t end = at;
    while (end < source_.size() &&
           (digits.find(source_[end]) != std::string_view::npos ||
            (source_[end] == '_' && end > at && source_[end - 1] != '_' && end + 1 < source_.size() &&
             digits.find(source_[end + 1]) != std::string_view::npos))) {
      ++end;
    }
    return end;
  }

  void LexNumber() {
    constexpr std::string_view kDecimal = "0123456789";
    size_t end = DigitsAt(at_, kDecimal);
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
        is_float = true;
        end = DigitsAt(end + 1, kDecimal);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && IsDigit(source_[exponent])) {
          is_float = true;
          end = DigitsAt(exponent, kDecimal);
        }
      }
    }
    if (is_float) return AddFloat(end);
    AddInteger(end);
  }

  std::string WithoutUnderscores(size_t begin, size_t end) const {
    std::string digits = source_.substr(begin, end - begin);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    return digits;
  }

  void AddFloat(size_t end) {
    const std::string digits = WithoutUnderscores(at_, end);
    Add(TokenKind::kFloat);
    std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().real);
    Skip(end - at_);
  }

  void AddInteger(size_t end) {
    int base = 10;
    size_t begin = at_;
    const char letter = Peek() == '0' ? static_cast<char>(Peek(1) | 0x20) : '\0';
    const std::string_view digits = letter == 'x'   ? "0123456789abcdefABCDEF"
                                    : letter == 'o' ? "01234567"
                                    : letter == 'b' ? "01"
                                                    : "";
    if (!digits.empty() && DigitsAt(at_ + 2, digits) > at_ + 2) {
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
      begin = at_ + 2;
      end = DigitsAt(begin, digits);
    } else if (Peek() == '0') {
      end = DigitsAt(at_, "0");  // 012 is 0 and 12, which then does not parse
    }
    const std::string number = WithoutUnderscores(begin, end);
    Add(TokenKind::kInteger, number);
    const auto [stop, error] =
        std::from_chars(number.data(), number.data() + number.size(), tokens_.back().integer, base);
    if (error != std::errc{}) Fail(Concat("the number ", number, " has more than 64 bits"), line_);
    Skip(end - at_);
  }

  void LexOperator(std::string& open) {
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!Sees(op)) continue;
      Add(TokenKind::kOperator, std::string(op));
      return Skip(2);
    }
    const char c = Peek();
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      Fail(Concat("unexpected character '", std::string_view(source_).substr(at_, 1), "'"), line_);
    }
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) Fail(Concat("unexpected '", std::string(1, c), "'"), line_);
      open.pop_back();
    }
    Add(TokenKind::kOperator, std::string(1, c));
    Skip(1);
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // at_ is at the beginning of a line, or what is between was taken away
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace sluice::engine::jinja
