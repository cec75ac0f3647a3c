#include "engine/text/jinja/expression_parser.h"

#include <algorithm>
#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"

namespace sluice::engine::jinja {
namespace {

constexpr int kMaxDepth = 400;  // of a tree, so that nothing that walks it runs out of stack

Expression Make(ExpressionKind kind, int line, std::string text = {}) {
  Expression expression{};
  expression.kind = kind;
  expression.line = line;
  expression.text = std::move(text);
  return expression;
}

Expression Constant(Value value, int line) {
  Expression expression = Make(ExpressionKind::kConstant, line);
  expression.constant = std::move(value);
  return expression;
}

}  // namespace

ExpressionPtr ExpressionParser::Finish(Expression expression) const {
  int deepest = 0;
  const auto look = [&](const ExpressionPtr& part) {
    if (part != nullptr) deepest = std::max(deepest, part->depth);
  };
  for (const ExpressionPtr& part : expression.parts) look(part);
  for (const ExpressionPtr& part : expression.arguments.positional) look(part);
  for (const CallArguments::Named& named : expression.arguments.named) look(named.value);
  look(expression.arguments.more_positional);
  look(expression.arguments.more_named);
  if (deepest >= kMaxDepth) Fail("an expression is nested too deeply", expression.line);
  expression.depth = deepest + 1;
  return std::make_unique<const Expression>(std::move(expression));
}

bool ExpressionParser::SeesTupleEnd(std::string_view end) const {
  return tokens_.Sees(TokenKind::kOutputEnd) || tokens_.Sees(TokenKind::kBlockEnd) || tokens_.SeesOperator(")") ||
         (!end.empty() && tokens_.SeesName(end));
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_conditional, std::string_view end, bool in_parentheses) {
  const TokenStream::Level level(tokens_);
  Expression tuple = Make(ExpressionKind::kTuple, tokens_.line());
  bool is_tuple = false;
  while (!SeesTupleEnd(end)) {
    tuple.parts.push_back(with_conditional ? ParseConditional() : ParseOr());
    if (!tokens_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple.parts.empty()) return std::move(tuple.parts[0]);
  if (!is_tuple && !in_parentheses) tokens_.Unexpected("an expression");
  return Finish(std::move(tuple));
}

ExpressionPtr ExpressionParser::ParseConditional() {
  const TokenStream::Level level(tokens_);
  ExpressionPtr value = ParseOr();
  while (tokens_.SeesName("if")) {
    Expression conditional = Make(ExpressionKind::kConditional, tokens_.Take().line);
    conditional.parts.push_back(std::move(value));
    conditional.parts.push_back(ParseOr());
    conditional.parts.push_back(tokens_.TakeName("else") ? ParseConditional() : nullptr);
    value = Finish(std::move(conditional));
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  const TokenStream::Level level(tokens_);
  ExpressionPtr left = ParseAnd();
  while (tokens_.SeesName("or")) {
    Expression both = Make(ExpressionKind::kOr, tokens_.Take().line);
    both.parts.push_back(std::move(left));
    both.parts.push_back(ParseAnd());
    left = Finish(std::move(both));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (tokens_.SeesName("and")) {
    Expression both = Make(ExpressionKind::kAnd, tokens_.Take().line);
    both.parts.push_back(std::move(left));
    both.parts.push_back(ParseNot());
    left = Finish(std::move(both));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!tokens_.SeesName("not")) return ParseCompare();
  const TokenStream::Level level(tokens_);
  Expression negation = Make(ExpressionKind::kUnary, tokens_.Take().line, "not");
  negation.parts.push_back(ParseNot());
  return Finish(std::move(negation));
}

ExpressionPtr ExpressionParser::ParseCompare() {
  Expression compare = Make(ExpressionKind::kCompare, tokens_.line());
  compare.parts.push_back(ParseSum());
  while (true) {
    std::string op;
    for (const std::string_view known : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (tokens_.SeesOperator(known)) op = known;
    }
    if (tokens_.SeesName("in")) op = "in";
    if (tokens_.SeesName("not") && tokens_.next().kind == TokenKind::kName && tokens_.next().text == "in") {
      tokens_.Take();
      op = "not in";
    }
    if (op.empty()) break;
    tokens_.Take();
    compare.texts.push_back(op);
    compare.parts.push_back(ParseSum());
  }
  if (compare.texts.empty()) return std::move(compare.parts[0]);
  return Finish(std::move(compare));
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  while (tokens_.SeesOperator("+") || tokens_.SeesOperator("-")) {
    const Token op = tokens_.Take();
    Expression sum = Make(ExpressionKind::kBinary, op.line, op.text);
    sum.parts.push_back(std::move(left));
    sum.parts.push_back(ParseConcat());
    left = Finish(std::move(sum));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcat() {
  Expression concat = Make(ExpressionKind::kConcat, tokens_.line());
  do {
    concat.parts.push_back(ParseProduct());
  } while (tokens_.TakeOperator("~"));
  if (concat.parts.size() == 1) return std::move(concat.parts[0]);
  return Finish(std::move(concat));
}

ExpressionPtr ExpressionParser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  while (tokens_.SeesOperator("*") || tokens_.SeesOperator("/") || tokens_.SeesOperator("//") ||
         tokens_.SeesOperator("%")) {
    const Token op = tokens_.Take();
    Expression product = Make(ExpressionKind::kBinary, op.line, op.text);
    product.parts.push_back(std::move(left));
    product.parts.push_back(ParsePower());
    left = Finish(std::move(product));
  }
  return left;
}

// Unlike Python's: from left to right, and weaker than a sign.
ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary();
  while (tokens_.SeesOperator("**")) {
    const Token op = tokens_.Take();
    Expression power = Make(ExpressionKind::kBinary, op.line, op.text);
    power.parts.push_back(std::move(left));
    power.parts.push_back(ParseUnary());
    left = Finish(std::move(power));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filter) {
  const TokenStream::Level level(tokens_);
  ExpressionPtr value;
  if (tokens_.SeesOperator("-") || tokens_.SeesOperator("+")) {
    const Token op = tokens_.Take();
    Expression sign = Make(ExpressionKind::kUnary, op.line, op.text);
    sign.parts.push_back(ParseUnary(/*with_filter=*/false));
    value = Finish(std::move(sign));
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  while (with_filter) {
    if (tokens_.SeesOperator("|")) {
      value = ParseFilters(std::move(value));
    } else if (tokens_.SeesName("is")) {
      value = ParseTest(std::move(value));
    } else if (tokens_.SeesOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      break;
    }
  }
  return value;
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      std::string text;
      while (tokens_.Sees(TokenKind::kString)) text += tokens_.Take().text;
      return Finish(Constant(Heap(nullptr).NewText(std::move(text), Origin::kTemplate), line));
    }
    case TokenKind::kInteger:
      return Finish(Constant(Value(tokens_.Take().integer), line));
    case TokenKind::kFloat:
      return Finish(Constant(Value(tokens_.Take().real), line));
    default:
      break;
  }
  if (tokens_.SeesOperator("[")) return ParseList();
  if (tokens_.SeesOperator("{")) return ParseDict();
  if (!tokens_.TakeOperator("(")) tokens_.Unexpected("an expression");
  ExpressionPtr value = ParseTuple(/*with_conditional=*/true, {}, /*in_parentheses=*/true);
  tokens_.ExpectOperator(")");
  return value;
}

ExpressionPtr ExpressionParser::ParseName() {
  const Token token = tokens_.Take();
  if (token.text == "true" || token.text == "True") return Finish(Constant(Value(true), token.line));
  if (token.text == "false" || token.text == "False") return Finish(Constant(Value(false), token.line));
  if (token.text == "none" || token.text == "None") return Finish(Constant(Value(None{}), token.line));
  Expression name = Make(ExpressionKind::kName, token.line, token.text);
  name.symbol = tokens_.SymbolOfRead(token.text);
  return Finish(std::move(name));
}

ExpressionPtr ExpressionParser::ParseList() {
  Expression list = Make(ExpressionKind::kList, tokens_.line());
  tokens_.ExpectOperator("[");
  while (!tokens_.SeesOperator("]")) {
    list.parts.push_back(Parse());
    if (!tokens_.TakeOperator(",")) break;
  }
  tokens_.ExpectOperator("]");
  return Finish(std::move(list));
}

ExpressionPtr ExpressionParser::ParseDict() {
  Expression dict = Make(ExpressionKind::kDict, tokens_.line());
  tokens_.ExpectOperator("{");
  while (!tokens_.SeesOperator("}")) {
    dict.parts.push_back(Parse());
    tokens_.ExpectOperator(":");
    dict.parts.push_back(Parse());
    if (!tokens_.TakeOperator(",")) break;
  }
  tokens_.ExpectOperator("}");
  return Finish(std::move(dict));
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.SeesOperator(".")) {
      value = ParseAttribute(std::move(value));
    } else if (tokens_.SeesOperator("[")) {
      value = ParseItem(std::move(value));
    } else if (tokens_.SeesOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::ParseAttribute(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  Expression attribute = Make(ExpressionKind::kAttribute, line);
  attribute.parts.push_back(std::move(value));
  if (tokens_.Sees(TokenKind::kName)) {
    attribute.text = tokens_.Take().text;
  } else if (tokens_.Sees(TokenKind::kInteger)) {
    attribute.kind = ExpressionKind::kItem;
    attribute.parts.push_back(Finish(Constant(Value(tokens_.Take().integer), line)));
  } else {
    tokens_.Unexpected("a name or number");
  }
  return Finish(std::move(attribute));
}

ExpressionPtr ExpressionParser::ParseItem(ExpressionPtr value) {
  Expression item = Make(ExpressionKind::kItem, tokens_.Take().line);
  item.parts.push_back(std::move(value));
  const auto ends = [&] { return tokens_.SeesOperator("]") || tokens_.SeesOperator(":"); };
  item.parts.push_back(ends() ? nullptr : ParseTuple());
  if (tokens_.TakeOperator(":")) {
    item.kind = ExpressionKind::kSlice;
    item.parts.push_back(ends() ? nullptr : Parse());
    item.parts.push_back(tokens_.TakeOperator(":") && !ends() ? Parse() : nullptr);
  } else if (item.parts[1] == nullptr) {
    tokens_.Unexpected("an index");
  }
  tokens_.ExpectOperator("]");
  return Finish(std::move(item));
}

CallArguments ExpressionParser::ParseArguments() {
  CallArguments arguments;
  const int line = tokens_.line();
  const auto ensure = [&](bool holds) {
    if (!holds) Fail("the arguments of a call are in the wrong order", line);
  };
  tokens_.ExpectOperator("(");
  while (!tokens_.SeesOperator(")")) {
    const bool no_stars = arguments.more_positional == nullptr && arguments.more_named == nullptr;
    if (tokens_.TakeOperator("*")) {
      ensure(no_stars);
      arguments.more_positional = Parse();
    } else if (tokens_.TakeOperator("**")) {
      ensure(arguments.more_named == nullptr);
      arguments.more_named = Parse();
    } else if (tokens_.Sees(TokenKind::kName) && tokens_.next().kind == TokenKind::kOperator &&
               tokens_.next().text == "=") {
      ensure(arguments.more_named == nullptr);
      std::string name = tokens_.Take().text;
      tokens_.Take();
      arguments.named.push_back({std::move(name), Parse()});
    } else {
      ensure(no_stars && arguments.named.empty());
      arguments.positional.push_back(Parse());
    }
    if (!tokens_.TakeOperator(",")) break;
  }
  tokens_.ExpectOperator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  Expression call = Make(ExpressionKind::kCall, tokens_.line());
  call.parts.push_back(std::move(callee));
  call.arguments = ParseArguments();
  return Finish(std::move(call));
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = tokens_.Expect(TokenKind::kName, "a name").text;
  while (tokens_.TakeOperator(".")) name += "." + tokens_.Expect(TokenKind::kName, "a name").text;
  return name;
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr value, bool first_inline) {
  while (first_inline || tokens_.TakeOperator("|")) {
    first_inline = false;
    Expression filter = Make(ExpressionKind::kFilter, tokens_.line());
    filter.text = ParseDottedName();
    if (tokens_.SeesOperator("(")) filter.arguments = ParseArguments();
    filter.parts.push_back(std::move(value));
    value = Finish(std::move(filter));
  }
  return value;
}

bool ExpressionParser::SeesTestArgument() const {
  if (tokens_.SeesOperator("[") || tokens_.SeesOperator("{")) return true;
  const TokenKind kind = tokens_.current().kind;
  if (kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat) return true;
  return kind == TokenKind::kName && !tokens_.SeesName("else") && !tokens_.SeesName("or") && !tokens_.SeesName("and");
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  const bool negated = tokens_.TakeName("not");
  Expression test = Make(ExpressionKind::kTest, line);
  test.text = ParseDottedName();
  test.parts.push_back(std::move(value));
  if (tokens_.SeesOperator("(")) {
    test.arguments = ParseArguments();
  } else if (SeesTestArgument()) {
    if (tokens_.SeesName("is")) Fail("tests cannot be chained with 'is'", tokens_.line());
    test.arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  ExpressionPtr result = Finish(std::move(test));
  if (!negated) return result;
  Expression negation = Make(ExpressionKind::kUnary, line, "not");
  negation.parts.push_back(std::move(result));
  return Finish(std::move(negation));
}

}  // namespace sluice::engine::jinja
