#include "engine/text/jinja/printf_format.h"

#include <array>
#include <cstdio>
#include <string>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

constexpr int64_t kMaxWidth = 1000;

class Formatter {
 public:
  Formatter(Environment& env, const Text& format, const Value& arguments)
      : env_(env), format_(format), bytes_(format.bytes()), arguments_(arguments) {}

  Text Run() {
    env_.budget().StepBytes(bytes_.size());
    while (at_ < bytes_.size()) {
      const size_t percent = std::min(bytes_.find('%', at_), bytes_.size());
      out_.Append(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes_.size()) Conversion();
    }
    // Python lets mappings, and what else has items, go unused.
    const bool may_be_left =
        arguments_.Is(Kind::kDict) || arguments_.Is(Kind::kUndefined) || (arguments_.Is(Kind::kList) && !IsTuple());
    if (!may_be_left && next_ < (IsTuple() ? arguments_.list().items.size() : size_t{1})) {
      Fail("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  bool IsTuple() const { return arguments_.Is(Kind::kList) && arguments_.list().kind == ListKind::kTuple; }

  Value Next() {
    if (IsTuple() ? next_ >= arguments_.list().items.size() : next_ > 0) {
      Fail("not enough arguments for format string");
    }
    return IsTuple() ? arguments_.list().items[next_++] : (++next_, arguments_);
  }

  char Peek() const {
    if (at_ >= bytes_.size()) Fail("incomplete format");
    return bytes_[at_];
  }

  int64_t Number() {
    if (Peek() == '*') {
      ++at_;
      return NeedInteger(Next(), "a width");
    }
    int64_t number = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) number = std::min(number * 10 + (Peek() - '0'), kMaxWidth + 1);
    return number;
  }

  Value Named() {
    const size_t end = bytes_.find(')', at_);
    if (end == std::string::npos) Fail("incomplete format key");
    if (!arguments_.Is(Kind::kDict)) Fail("format requires a mapping");
    const std::string name = bytes_.substr(at_ + 1, end - at_ - 1);
    const Value* const found = arguments_.dict().Find(name);
    if (found == nullptr) Fail(Concat("there is no '", name, "' for the format string"));
    at_ = end + 1;
    return *found;
  }

  void Conversion() {
    const Origin origin = format_.OriginAt(at_);
    ++at_;
    Value value;
    const bool is_named = Peek() == '(';
    if (is_named) value = Named();
    std::string flags;
    while (std::string_view("-+ #0").find(Peek()) != std::string_view::npos) flags += bytes_[at_++];
    const int64_t width = Number();
    int64_t precision = -1;
    if (Peek() == '.') {
      ++at_;
      precision = Number();
    }
    if (width > kMaxWidth || width < -kMaxWidth || precision > kMaxWidth) Fail("a width of a format is too large");
    const char kind = Peek();
    ++at_;
    if (kind == '%') return out_.Append("%", origin);
    if (!is_named) value = Next();
    Pad(Converted(value, kind, flags, precision, width), flags, width);
  }

  void Pad(const Text& text, const std::string& flags, int64_t width) {
    const bool left = flags.find('-') != std::string::npos || width < 0;
    const auto size = static_cast<int64_t>(CountCharacters(text.bytes()));
    const int64_t missing = std::max<int64_t>(0, (width < 0 ? -width : width) - size);
    const std::string padding(static_cast<size_t>(missing), ' ');
    if (!left) out_.Append(padding, Origin::kConversation);
    out_.Append(text);
    if (left) out_.Append(padding, Origin::kConversation);
  }

  Text Converted(const Value& value, char kind, const std::string& flags, int64_t precision, int64_t width) {
    if (kind == 's' || kind == 'r') {
      Text text;
      kind == 's' ? AppendStr(env_, value, text) : AppendRepr(env_, value, text);
      if (precision >= 0) text.Truncate(ByteOfCharacter(text.bytes(), static_cast<size_t>(precision)));
      return text;
    }
    if (kind == 'c') {
      if (value.Is(Kind::kText) && CountCharacters(value.bytes()) == 1) return value.text();
      const int64_t c = NeedInteger(value, "%c");
      if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) Fail("%c arg not in range");
      std::string text;
      AppendUtf8(static_cast<uint32_t>(c), text);
      return Text(text, value.origin());
    }
    const bool is_integer = std::string_view("diuxXo").find(kind) != std::string_view::npos;
    if (!is_integer && std::string_view("eEfFgG").find(kind) == std::string_view::npos) {
      Fail(Concat("unsupported format character '", std::string(1, kind), "'"));
    }
    if (!value.IsNumber())
      Fail(Concat("%", std::string(1, kind), " format: a real number is required, not ", TypeName(value)));
    return Text(NumberText(value, kind, is_integer, flags, precision, width), value.origin());
  }

  static std::string NumberText(const Value& value, char kind, bool is_integer, const std::string& flags,
                                int64_t precision, int64_t width) {
    std::string format = "%" + flags;
    if (width > 0 && flags.find('0') != std::string::npos) format += Concat(width);
    if (precision >= 0) format += Concat(".", precision);
    std::array<char, 3000> buffer{};
    int length = 0;
    if (!is_integer) {
      length = std::snprintf(buffer.data(), buffer.size(), (format + kind).c_str(), value.real());
    } else {
      if (!value.IsIntegral() && !(std::string_view("diu").find(kind) != std::string_view::npos &&
                                   value.real() > -9e18 && value.real() < 9e18)) {
        Fail(Concat("%", std::string(1, kind), " format: an integer is required"));
      }
      const int64_t number = value.IsIntegral() ? value.integer() : static_cast<int64_t>(value.real());
      const bool hex = kind == 'x' || kind == 'X' || kind == 'o';
      if (hex && number < 0) Fail("negative numbers have no hexadecimal form here");
      format += hex ? std::string("l") + kind : std::string("ld");
      length = std::snprintf(buffer.data(), buffer.size(), format.c_str(), number);
    }
    return std::string(buffer.data(), std::min(static_cast<size_t>(length), buffer.size() - 1));
  }

  Environment& env_;
  const Text& format_;
  const std::string& bytes_;
  const Value& arguments_;
  Text out_;
  size_t at_ = 0;
  size_t next_ = 0;  // argument
};

}  // namespace

Value PrintfFormat(Environment& env, const Text& format, const Value& arguments) {
  return env.heap().NewText(Formatter(env, format, arguments).Run());
}

}  // namespace sluice::engine::jinja
