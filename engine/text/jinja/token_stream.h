// The tokens of a template with a place in them, and the names that were seen, numbered.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

namespace sluice::engine::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  Token Take();

  bool Sees(TokenKind kind) const { return current().kind == kind; }
  bool SeesName(std::string_view name) const { return Sees(TokenKind::kName) && current().text == name; }
  bool SeesOperator(std::string_view op) const { return Sees(TokenKind::kOperator) && current().text == op; }
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view op);
  Token Expect(TokenKind kind, std::string_view what);
  void ExpectName(std::string_view name);
  void ExpectOperator(std::string_view op);
  [[noreturn]] void Unexpected(std::string_view wanted) const;

  Symbol SymbolOf(const std::string& name);
  // Reading a variable, as opposed to assigning one, is counted.
  Symbol SymbolOfRead(const std::string& name);
  int64_t reads(const std::string& name) const;
  std::vector<std::string> TakeNames() { return std::move(names_); }

  // While it lives, the parser is one level deeper; throws if that is too deep.
  class Level {
   public:
    explicit Level(TokenStream& stream);
    ~Level() { --stream_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, Symbol> symbols_;
  absl::flat_hash_map<std::string, int64_t> reads_;
};

}  // namespace sluice::engine::jinja
