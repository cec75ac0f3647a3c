// Statements; expressions are in evaluate.cc.
#include "engine/text/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/functions.h"
#include "engine/text/jinja/nested.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"

namespace sluice::engine::jinja {

void Interpreter::SetVariable(std::string_view name, Value value) {
  const auto found = std::find(program_.names.begin(), program_.names.end(), name);
  if (found == program_.names.end()) return;
  globals_.Set(static_cast<Symbol>(found - program_.names.begin()), std::move(value));
}

Text Interpreter::Run() {
  Scope functions(nullptr);
  for (const FunctionName& f : kFunctions) {
    const auto found = std::find(program_.names.begin(), program_.names.end(), f.name);
    if (found == program_.names.end()) continue;
    const auto symbol = static_cast<Symbol>(found - program_.names.begin());
    if (globals_.Find(symbol) == nullptr) globals_.Set(symbol, env_.NewObject({f.function}));
  }
  Text text;
  out_ = &text;
  try {
    Scope top(&globals_);
    RunBody(program_.body, top);
  } catch (Error& error) {
    if (error.line == 0) error.line = line_;
    throw;
  }
  return text;
}

void Interpreter::CheckOutput() {
  if (out_->size() > env_.budget().limits().output_bytes) {
    throw Error{ErrorKind::kLimit,
                Concat("the text of the chat template is longer than ", env_.budget().limits().output_bytes, " bytes")};
  }
}

Scope* Interpreter::InnerScope(const Statement& statement, Scope& scope, Scope* on_stack) {
  return statement.keeps_scope ? env_.NewScope(&scope) : on_stack;
}

Text Interpreter::Capture(absl::FunctionRef<void()> run) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  run();  // what throws ends the whole rendering
  out_ = outer;
  return text;
}

Interpreter::Flow Interpreter::RunBody(const Body& body, Scope& scope) {
  for (const auto& statement : body) {
    const Flow flow = RunStatement(*statement, scope);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement, Scope& scope) {
  const Nested nested(&depth_, env_.budget());
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      env_.budget().StepBytes(statement.constant.text().size());
      out_->Append(statement.constant.text());
      CheckOutput();
      return Flow::kOn;
    case StatementKind::kOutput:
      for (const ExpressionPtr& expression : statement.expressions) {
        AppendStr(env_, Evaluate(*expression, scope), *out_);
        CheckOutput();
      }
      return Flow::kOn;
    case StatementKind::kIf:
      return RunIf(statement, scope);
    case StatementKind::kFor:
      return RunFor(statement, scope);
    case StatementKind::kSet:
      Assign(statement.target, Evaluate(*statement.expressions[0], scope), scope);
      return Flow::kOn;
    case StatementKind::kSetBlock:
      RunSetBlock(statement, scope);
      return Flow::kOn;
    case StatementKind::kMacro:
      scope.Set(statement.symbol, env_.NewObject({Macro{&statement, &scope}}));
      return Flow::kOn;
    case StatementKind::kCallBlock:
      RunCallBlock(statement, scope);
      return Flow::kOn;
    case StatementKind::kFilterBlock:
    case StatementKind::kWith:
    case StatementKind::kScope:
      return RunScoped(statement, scope);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement, Scope& scope) {
  for (const Branch& branch : statement.branches) {
    if (IsTrue(Evaluate(*branch.condition, scope))) return RunBody(branch.body, scope);
  }
  return RunBody(statement.otherwise, scope);
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement, Scope& scope) {
  std::vector<Value> items = ItemsOf(env_, Evaluate(*statement.expressions[0], scope));
  return RunItems(statement, scope, std::move(items), /*depth=*/1);
}

std::vector<Value> Interpreter::FilteredItems(const Statement& statement, Scope& scope, std::vector<Value> items) {
  if (statement.expressions[1] == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    Scope inner(&scope);
    Assign(statement.target, item, inner);
    if (IsTrue(Evaluate(*statement.expressions[1], inner))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::RunItems(const Statement& statement, Scope& scope, std::vector<Value> items, int depth) {
  items = FilteredItems(statement, scope, std::move(items));
  Value loop_value;
  Loop* loop = nullptr;
  if (statement.uses_loop) {
    loop_value = env_.NewObject({Loop{items, 0, depth, {}, false, statement.recursive ? &statement : nullptr, &scope}});
    loop = loop_value.object()->As<Loop>();
  }
  Scope on_stack(&scope);
  for (size_t i = 0; i < items.size(); ++i) {
    env_.budget().Step();
    Scope* const inner = InnerScope(statement, scope, &on_stack);
    on_stack.Clear();
    if (loop != nullptr) {
      loop->index = i;
      inner->Set(statement.symbol, loop_value);
    }
    Assign(statement.target, items[i], *inner);
    if (RunBody(statement.body, *inner) == Flow::kBreak) break;
  }
  if (loop != nullptr) loop->items.clear();
  if (!items.empty()) return Flow::kOn;
  Scope inner(&scope);
  return RunBody(statement.otherwise, statement.keeps_scope ? *env_.NewScope(&scope) : inner);
}

Interpreter::Flow Interpreter::RunScoped(const Statement& statement, Scope& scope) {
  Scope on_stack(&scope);
  Scope* const inner = InnerScope(statement, scope, &on_stack);
  if (statement.kind == StatementKind::kWith) {
    std::vector<Value> values;
    for (const ExpressionPtr& expression : statement.expressions) values.push_back(Evaluate(*expression, scope));
    for (size_t i = 0; i < values.size(); ++i) Assign(statement.with_targets[i], std::move(values[i]), *inner);
  }
  if (statement.kind != StatementKind::kFilterBlock) return RunBody(statement.body, *inner);
  Flow flow = Flow::kOn;
  Text text = Capture([&] { flow = RunBody(statement.body, *inner); });
  piped_ = env_.heap().NewText(std::move(text));
  AppendStr(env_, Evaluate(*statement.expressions[0], scope), *out_);
  CheckOutput();
  return flow;
}

void Interpreter::RunSetBlock(const Statement& statement, Scope& scope) {
  Scope on_stack(&scope);
  Scope* const inner = InnerScope(statement, scope, &on_stack);
  Text text = Capture([&] { RunBody(statement.body, *inner); });
  Value value = env_.heap().NewText(std::move(text));
  if (statement.expressions[0] != nullptr) {
    piped_ = std::move(value);
    value = Evaluate(*statement.expressions[0], scope);
  }
  Assign(statement.target, std::move(value), scope);
}

void Interpreter::RunCallBlock(const Statement& statement, Scope& scope) {
  const Expression& call = *statement.expressions[0];
  const Value callee = Evaluate(*call.parts[0], scope);
  Arguments arguments = EvaluateArguments(call.arguments, scope);
  arguments.named.emplace_back("caller", env_.NewObject({Macro{&statement, &scope}}));
  AppendStr(env_, Call(callee, std::move(arguments)), *out_);
  CheckOutput();
}

void Interpreter::Assign(const Target& target, Value value, Scope& scope) {
  if (!target.targets.empty()) {
    std::vector<Value> items = ItemsOf(env_, value);
    if (items.size() < target.targets.size()) {
      Fail(Concat("not enough values to unpack (expected ", target.targets.size(), ", got ", items.size(), ")"));
    }
    if (items.size() > target.targets.size()) {
      Fail(Concat("too many values to unpack (expected ", target.targets.size(), ")"));
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.targets[i], std::move(items[i]), scope);
    return;
  }
  if (target.attribute.empty()) return scope.Set(target.symbol, std::move(value));
  const Value* const found = scope.Find(target.symbol);
  Namespace* const space = found != nullptr && found->Is(Kind::kObject) ? found->object()->As<Namespace>() : nullptr;
  if (space == nullptr) Fail("cannot assign attribute on non-namespace object");
  for (auto& [name, old] : space->attributes) {
    if (name != target.attribute) continue;
    old = std::move(value);
    return;
  }
  env_.budget().Take(sizeof(Value) + target.attribute.size());
  space->attributes.emplace_back(target.attribute, std::move(value));
}

}  // namespace sluice::engine::jinja
