#include "engine/text/jinja/token_stream.h"

#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"

namespace sluice::engine::jinja {
namespace {

constexpr int kMaxLevel = 400;

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
    case TokenKind::kOutputBegin:
    case TokenKind::kBlockBegin:
      return "the beginning of a tag";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kOperator:
      return Concat("'", token.text, "'");
  }
  return "";
}

}  // namespace

Token TokenStream::Take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::TakeName(std::string_view name) {
  if (!SeesName(name)) return false;
  Take();
  return true;
}

bool TokenStream::TakeOperator(std::string_view op) {
  if (!SeesOperator(op)) return false;
  Take();
  return true;
}

void TokenStream::Unexpected(std::string_view wanted) const {
  Fail(Concat("expected ", wanted, ", got ", Describe(current())), line());
}

Token TokenStream::Expect(TokenKind kind, std::string_view what) {
  if (!Sees(kind)) Unexpected(what);
  return Take();
}

void TokenStream::ExpectName(std::string_view name) {
  if (!TakeName(name)) Unexpected(Concat("'", name, "'"));
}

void TokenStream::ExpectOperator(std::string_view op) {
  if (!TakeOperator(op)) Unexpected(Concat("'", op, "'"));
}

Symbol TokenStream::SymbolOf(const std::string& name) {
  const auto [found, is_new] = symbols_.emplace(name, static_cast<Symbol>(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

Symbol TokenStream::SymbolOfRead(const std::string& name) {
  ++reads_[name];
  return SymbolOf(name);
}

int64_t TokenStream::reads(const std::string& name) const {
  const auto found = reads_.find(name);
  return found == reads_.end() ? 0 : found->second;
}

TokenStream::Level::Level(TokenStream& stream) : stream_(stream) {
  if (stream_.level_ == kMaxLevel) Fail("expressions or statements are nested too deeply", stream_.line());
  ++stream_.level_;
}

}  // namespace sluice::engine::jinja
