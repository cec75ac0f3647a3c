#include "router/http/json_text.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

std::string Quoted(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct Spelling {
  std::string_view number;
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(uint64_t value) const { return absl::StrCat(value); }
  std::string operator()(double) const { return std::string(number); }
  std::string operator()(const std::string& value) const { return Quoted(value); }
  std::string operator()(OpenList) const { return "["; }
};

}  // namespace

void JsonText::Separate() {
  if (!std::exchange(first_, false)) text_ += ',';
}

bool JsonText::Open(char bracket) {
  Separate();
  text_ += bracket;
  first_ = true;
  return ++depth_ <= kMaxJsonDepth;
}

void JsonText::Close(char bracket) {
  text_ += bracket;
  first_ = false;
  --depth_;
}

void JsonText::Key(std::string_view name) {
  Separate();
  absl::StrAppend(&text_, Quoted(name), ":");
  first_ = true;
}

void JsonText::Scalar(const JsonValue& value, std::string_view number) {
  Separate();
  text_ += std::visit(Spelling{number}, value);
}

std::string JsonText::Take() {
  first_ = true;
  depth_ = 0;
  return std::exchange(text_, "");
}

}  // namespace sluice::router
