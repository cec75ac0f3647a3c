#include "engine/text/jinja/parser.h"

#include <initializer_list>
#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/expression_parser.h"
#include "engine/text/jinja/known_names.h"
#include "engine/text/jinja/token_stream.h"

namespace sluice::engine::jinja {
namespace {

using StatementPtr = std::unique_ptr<const Statement>;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Lex(source)), expressions_(&tokens_) {}

  Program Run() {
    Program program;
    program.body = ParseUntil({});
    CheckKnownNames(program.body);
    program.names = tokens_.TakeNames();
    return program;
  }

 private:
  static Statement Make(StatementKind kind, int line) {
    Statement statement{};
    statement.kind = kind;
    statement.line = line;
    return statement;
  }
  static StatementPtr Finish(Statement statement) { return std::make_unique<const Statement>(std::move(statement)); }

  // Up to a tag with one of the names, whose name is then the current token; without names, to the end.
  Body ParseUntil(std::initializer_list<std::string_view> ends) {
    const TokenStream::Level level(tokens_);
    Body body;
    while (true) {
      const int line = tokens_.line();
      if (tokens_.Sees(TokenKind::kText)) {
        Statement text = Make(StatementKind::kText, line);
        text.constant = Heap(nullptr).NewText(tokens_.Take().text, Origin::kTemplate);
        body.push_back(Finish(std::move(text)));
      } else if (tokens_.Sees(TokenKind::kOutputBegin)) {
        tokens_.Take();
        Statement output = Make(StatementKind::kOutput, line);
        output.expressions.push_back(expressions_.ParseTuple());
        tokens_.Expect(TokenKind::kOutputEnd, "'}}'");
        body.push_back(Finish(std::move(output)));
      } else if (tokens_.Sees(TokenKind::kBlockBegin)) {
        tokens_.Take();
        for (const std::string_view end : ends) {
          if (tokens_.SeesName(end)) return body;
        }
        body.push_back(ParseStatement(line));
        tokens_.Expect(TokenKind::kBlockEnd, "'%}'");
      } else if (ends.size() == 0) {
        return body;
      } else {
        Fail(Concat("the template ends, but '", *(ends.end() - 1), "' is missing"), line);
      }
    }
  }

  // The body of a tag, whose end is still to come.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    tokens_.TakeOperator(":");
    tokens_.Expect(TokenKind::kBlockEnd, "'%}'");
    return ParseUntil(ends);
  }
  Body ParseWholeBody(std::string_view end) {
    Body body = ParseBody({end});
    tokens_.Take();
    return body;
  }

  StatementPtr ParseStatement(int line) {
    const Token name = tokens_.Expect(TokenKind::kName, "the name of a tag");
    if (name.text == "for") return ParseFor(line);
    if (name.text == "if") return ParseIf(line);
    if (name.text == "set") return ParseSet(line);
    if (name.text == "macro") return ParseMacro(line);
    if (name.text == "call") return ParseCallBlock(line);
    if (name.text == "filter") return ParseFilterBlock(line);
    if (name.text == "with") return ParseWith(line);
    if (name.text == "print") return ParsePrint(line);
    if (name.text == "generation") return ParseGeneration(line);
    if (name.text == "break" || name.text == "continue") return ParseLoopControl(line, name.text == "break");
    for (const std::string_view known : {"extends", "block", "include", "import", "from", "autoescape"}) {
      if (name.text == known) Fail(Concat("the tag '", known, "' is not supported in chat templates"), line);
    }
    Fail(Concat("unknown tag '", name.text, "'"), line);
  }

  Target ParseTargetPart(bool with_attribute) {
    const TokenStream::Level level(tokens_);
    if (tokens_.TakeOperator("(")) {
      Target target = ParseTarget(with_attribute, ")");
      tokens_.ExpectOperator(")");
      return target;
    }
    const int line = tokens_.line();
    Target target;
    target.name = tokens_.Expect(TokenKind::kName, "a name to assign to").text;
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == constant) Fail(Concat("can't assign to '", constant, "'"), line);
    }
    target.symbol = tokens_.SymbolOf(target.name);
    if (with_attribute && tokens_.TakeOperator(".")) {
      target.attribute = tokens_.Expect(TokenKind::kName, "a name").text;
    }
    return target;
  }

  // `end`: a name or an operator that may follow a comma.
  Target ParseTarget(bool with_attribute, std::string_view end) {
    Target first = ParseTargetPart(with_attribute);
    if (!tokens_.SeesOperator(",")) return first;
    Target several;
    several.targets.push_back(std::move(first));
    while (tokens_.TakeOperator(",")) {
      if (tokens_.SeesName(end) || tokens_.SeesOperator(end) || tokens_.Sees(TokenKind::kBlockEnd)) break;
      several.targets.push_back(ParseTargetPart(with_attribute));
    }
    return several;
  }

  StatementPtr ParseFor(int line) {
    Statement loop = Make(StatementKind::kFor, line);
    loop.target = ParseTarget(/*with_attribute=*/false, "in");
    tokens_.ExpectName("in");
    loop.expressions.push_back(expressions_.ParseTuple(/*with_conditional=*/false, "recursive"));
    loop.expressions.push_back(tokens_.TakeName("if") ? expressions_.Parse() : nullptr);
    loop.recursive = tokens_.TakeName("recursive");
    const int macros = macros_;
    const int64_t loop_reads = tokens_.reads("loop");
    ++loops_;
    loop.body = ParseBody({"else", "endfor"});
    --loops_;
    loop.uses_loop = tokens_.reads("loop") > loop_reads;
    if (tokens_.TakeName("else")) loop.otherwise = ParseBody({"endfor"});
    tokens_.Take();
    loop.symbol = tokens_.SymbolOf("loop");
    loop.keeps_scope = macros_ > macros;
    return Finish(std::move(loop));
  }

  StatementPtr ParseLoopControl(int line, bool is_break) {
    if (loops_ == 0) Fail(Concat("'", is_break ? "break" : "continue", "' outside of a loop"), line);
    return Finish(Make(is_break ? StatementKind::kBreak : StatementKind::kContinue, line));
  }

  StatementPtr ParseIf(int line) {
    Statement statement = Make(StatementKind::kIf, line);
    do {
      ExpressionPtr condition = expressions_.ParseTuple(/*with_conditional=*/false);
      statement.branches.push_back({std::move(condition), ParseBody({"elif", "else", "endif"})});
    } while (tokens_.TakeName("elif"));
    if (tokens_.TakeName("else")) statement.otherwise = ParseBody({"endif"});
    tokens_.Take();
    return Finish(std::move(statement));
  }

  StatementPtr ParseSet(int line) {
    Statement set = Make(StatementKind::kSet, line);
    set.target = ParseTarget(/*with_attribute=*/true, "=");
    if (tokens_.TakeOperator("=")) {
      set.expressions.push_back(expressions_.ParseTuple());
      return Finish(std::move(set));
    }
    set.kind = StatementKind::kSetBlock;
    set.expressions.push_back(expressions_.ParseFilters(nullptr));
    set.body = ParseScopedBody(set, "endset");
    return Finish(std::move(set));
  }

  void ParseParameters(Statement& macro) {
    tokens_.ExpectOperator("(");
    while (!tokens_.SeesOperator(")")) {
      if (!macro.parameters.empty()) tokens_.ExpectOperator(",");
      const Target target = ParseTargetPart(/*with_attribute=*/false);
      if (!target.targets.empty()) tokens_.Unexpected("a parameter");
      const bool has_default = tokens_.TakeOperator("=");
      if (!has_default && !macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        Fail("a parameter without a default follows one with a default", tokens_.line());
      }
      macro.parameters.push_back({target.symbol, target.name, has_default ? expressions_.Parse() : nullptr});
    }
    tokens_.ExpectOperator(")");
  }

  // The body of a macro: loops outside of it are out of reach.
  void ParseMacroBody(Statement& macro, std::string_view end) {
    const int macros = macros_;
    const int loops = std::exchange(loops_, 0);
    const int64_t callers = tokens_.reads("caller");
    const int64_t varargs = tokens_.reads("varargs");
    const int64_t kwargs = tokens_.reads("kwargs");
    macro.body = ParseWholeBody(end);
    macro.uses_caller = tokens_.reads("caller") > callers;
    macro.uses_varargs = tokens_.reads("varargs") > varargs;
    macro.uses_kwargs = tokens_.reads("kwargs") > kwargs;
    loops_ = loops;
    macro.keeps_scope = macros_ > macros;
    ++macros_;
  }

  StatementPtr ParseMacro(int line) {
    Statement macro = Make(StatementKind::kMacro, line);
    macro.name = tokens_.Expect(TokenKind::kName, "the name of a macro").text;
    macro.symbol = tokens_.SymbolOf(macro.name);
    ParseParameters(macro);
    ParseMacroBody(macro, "endmacro");
    return Finish(std::move(macro));
  }

  StatementPtr ParseCallBlock(int line) {
    Statement block = Make(StatementKind::kCallBlock, line);
    if (tokens_.SeesOperator("(")) ParseParameters(block);
    block.expressions.push_back(expressions_.Parse());
    if (block.expressions[0]->kind != ExpressionKind::kCall) Fail("'call' needs a call", line);
    block.name = "caller";
    block.symbol = tokens_.SymbolOf("caller");
    ParseMacroBody(block, "endcall");
    return Finish(std::move(block));
  }

  StatementPtr ParseFilterBlock(int line) {
    Statement block = Make(StatementKind::kFilterBlock, line);
    block.expressions.push_back(expressions_.ParseFilters(nullptr, /*first_inline=*/true));
    block.body = ParseScopedBody(block, "endfilter");
    return Finish(std::move(block));
  }

  StatementPtr ParseWith(int line) {
    Statement with = Make(StatementKind::kWith, line);
    while (!tokens_.Sees(TokenKind::kBlockEnd)) {
      if (!with.with_targets.empty()) tokens_.ExpectOperator(",");
      with.with_targets.push_back(ParseTargetPart(/*with_attribute=*/false));
      tokens_.ExpectOperator("=");
      with.expressions.push_back(expressions_.Parse());
    }
    with.body = ParseScopedBody(with, "endwith");
    return Finish(std::move(with));
  }

  StatementPtr ParsePrint(int line) {
    Statement output = Make(StatementKind::kOutput, line);
    while (!tokens_.Sees(TokenKind::kBlockEnd)) {
      if (!output.expressions.empty()) tokens_.ExpectOperator(",");
      output.expressions.push_back(expressions_.Parse());
    }
    return Finish(std::move(output));
  }

  // Marks the assistant's answers for training; for rendering it is a scope.
  StatementPtr ParseGeneration(int line) {
    Statement scope = Make(StatementKind::kScope, line);
    scope.body = ParseScopedBody(scope, "endgeneration");
    return Finish(std::move(scope));
  }

  Body ParseScopedBody(Statement& statement, std::string_view end) {
    const int macros = macros_;
    Body body = ParseWholeBody(end);
    statement.keeps_scope = macros_ > macros;
    return body;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;   // around what is being parsed
  int macros_ = 0;  // so far, call blocks included
};

}  // namespace

Program Parse(std::string_view source) {
  return Parser(source).Run();
}

}  // namespace sluice::engine::jinja
