// Parses the expressions of a template.
#pragma once

#include <string_view>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/token_stream.h"

namespace sluice::engine::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  ExpressionPtr Parse() { return ParseConditional(); }
  // Without `a if b else c`, since an `if` may follow.
  ExpressionPtr ParseOr();
  // One expression, or several with commas between them: a tuple. `end` is a name that ends it.
  ExpressionPtr ParseTuple(bool with_conditional = true, std::string_view end = {}, bool in_parentheses = false);
  // What follows a value: "|name(arguments)", any number of times. `first_inline`: without the first bar.
  ExpressionPtr ParseFilters(ExpressionPtr value, bool first_inline = false);

 private:
  ExpressionPtr ParseConditional();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filter = true);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseName();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr value);
  ExpressionPtr ParseAttribute(ExpressionPtr value);
  ExpressionPtr ParseItem(ExpressionPtr value);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  ExpressionPtr ParseTest(ExpressionPtr value);
  bool SeesTestArgument() const;
  CallArguments ParseArguments();
  std::string ParseDottedName();
  bool SeesTupleEnd(std::string_view end) const;

  ExpressionPtr Finish(Expression expression) const;

  TokenStream& tokens_;
};

}  // namespace sluice::engine::jinja
