// A parsed template: expressions and statements as plain trees. Names are numbered, so that looking one up compares
// numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

using Symbol = int32_t;

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  struct Named {
    std::string name;
    ExpressionPtr value;
  };
  std::vector<ExpressionPtr> positional;
  std::vector<Named> named;
  ExpressionPtr more_positional;  // *args
  ExpressionPtr more_named;       // **kwargs
};

enum class ExpressionKind : uint8_t {
  kConstant,     // constant
  kName,         // symbol, text
  kList,         // parts
  kTuple,        // parts
  kDict,         // parts: key, value, key, value, ...
  kAttribute,    // parts[0].text
  kItem,         // parts[0][parts[1]]
  kSlice,        // parts[0][parts[1]:parts[2]:parts[3]], each of these may be null
  kCall,         // parts[0](arguments)
  kFilter,       // parts[0] | text(arguments); parts[0] is null in a {% filter %} tag
  kTest,         // parts[0] is text(arguments)
  kUnary,        // text parts[0]: - + not
  kBinary,       // parts[0] text parts[1]: + - * / // % **
  kConcat,       // parts joined as text
  kCompare,      // parts[0] texts[0] parts[1] texts[1] parts[2] ...
  kAnd,          // parts[0] and parts[1]
  kOr,           // parts[0] or parts[1]
  kConditional,  // parts[0] if parts[1] else parts[2], which may be null
};

struct Expression {
  ExpressionKind kind;
  int line;
  int depth = 1;  // of the tree below
  std::string text;
  Symbol symbol = -1;
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> texts;
  CallArguments arguments;
};

// What a value is assigned to: a name, an attribute of a namespace, or several targets for the items of a value.
struct Target {
  Symbol symbol = -1;
  std::string name;
  std::string attribute;        // of the namespace `symbol`; empty: the name itself
  std::vector<Target> targets;  // not empty: these
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

struct Parameter {
  Symbol symbol;
  std::string name;
  ExpressionPtr default_value;
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

enum class StatementKind : uint8_t {
  kText,         // constant
  kOutput,       // expressions
  kFor,          // target in expressions[0] if expressions[1]: body, otherwise
  kIf,           // branches, otherwise
  kSet,          // target = expressions[0]
  kSetBlock,     // target = body through expressions[0], a chain of filters that may be null
  kMacro,        // symbol, name, parameters, body
  kCallBlock,    // expressions[0], a call, with body as its caller(parameters)
  kFilterBlock,  // body through expressions[0]
  kWith,         // with_targets = expressions: body
  kScope,        // body in a scope of its own
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind;
  int line;
  Value constant;
  std::vector<ExpressionPtr> expressions;
  Target target;
  std::vector<Target> with_targets;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
  Symbol symbol = -1;
  std::string name;
  std::vector<Parameter> parameters;
  bool recursive = false;    // of a loop
  bool keeps_scope = false;  // a macro in the body may outlive it
  // Which names of their own kind the body reads.
  bool uses_loop = false;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Program {
  Body body;
  std::vector<std::string> names;  // by symbol
};

}  // namespace sluice::engine::jinja
