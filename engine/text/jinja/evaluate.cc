// Expressions and calls.
#include <algorithm>
#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/functions.h"
#include "engine/text/jinja/interpreter.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/nested.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/tests.h"

namespace sluice::engine::jinja {

Value Interpreter::Evaluate(const Expression& e, Scope& scope) {
  const Nested nested(&depth_, env_.budget());
  line_ = e.line;
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.constant;
    case ExpressionKind::kName:
      return EvaluateName(e, scope);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return EvaluateList(e, scope);
    case ExpressionKind::kDict:
      return EvaluateDict(e, scope);
    case ExpressionKind::kAttribute:
      return GetAttribute(env_, Evaluate(*e.parts[0], scope), e.text);
    case ExpressionKind::kItem:
      return EvaluateBinary(e, scope);
    case ExpressionKind::kSlice:
      return EvaluateSlice(e, scope);
    case ExpressionKind::kCall:
      return EvaluateCall(e, scope);
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
      return EvaluateFilter(e, scope);
    case ExpressionKind::kUnary:
      return EvaluateUnary(e, scope);
    case ExpressionKind::kBinary:
      return EvaluateBinary(e, scope);
    case ExpressionKind::kConcat:
      return EvaluateConcat(e, scope);
    case ExpressionKind::kCompare:
      return EvaluateCompare(e, scope);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      Value left = Evaluate(*e.parts[0], scope);
      return IsTrue(left) == (e.kind == ExpressionKind::kOr) ? left : Evaluate(*e.parts[1], scope);
    }
    case ExpressionKind::kConditional:
      return EvaluateConditional(e, scope);
  }
  return Value();
}

Value Interpreter::EvaluateName(const Expression& e, Scope& scope) {
  const Value* const found = scope.Find(e.symbol);
  return found != nullptr ? *found : Heap::NewUndefined(Concat("'", e.text, "' is undefined"));
}

Value Interpreter::EvaluateList(const Expression& e, Scope& scope) {
  std::vector<Value> items;
  items.reserve(e.parts.size());
  for (const ExpressionPtr& part : e.parts) items.push_back(Evaluate(*part, scope));
  return env_.heap().NewList(std::move(items), e.kind == ExpressionKind::kTuple ? ListKind::kTuple : ListKind::kList);
}

Value Interpreter::EvaluateDict(const Expression& e, Scope& scope) {
  DictBuilder dict;
  for (size_t i = 0; i < e.parts.size(); i += 2) {
    Value key = Evaluate(*e.parts[i], scope);
    NeedHashable(key);
    Value value = Evaluate(*e.parts[i + 1], scope);
    dict.Set(std::move(key), std::move(value));
  }
  return env_.heap().NewDict(std::move(dict));
}

Value Interpreter::EvaluateSlice(const Expression& e, Scope& scope) {
  const Value value = Evaluate(*e.parts[0], scope);
  Value parts[3] = {Value(None{}), Value(None{}), Value(None{})};
  for (size_t i = 0; i < 3; ++i) {
    if (e.parts[i + 1] != nullptr) parts[i] = Evaluate(*e.parts[i + 1], scope);
  }
  line_ = e.line;
  return GetSlice(env_, value, parts[0], parts[1], parts[2]);
}

Value Interpreter::EvaluateCall(const Expression& e, Scope& scope) {
  const Expression& callee = *e.parts[0];
  if (callee.kind == ExpressionKind::kAttribute) {  // without making a value of the method
    const Value receiver = Evaluate(*callee.parts[0], scope);
    if (HasMethod(receiver, callee.text)) {
      const Arguments arguments = EvaluateArguments(e.arguments, scope);
      line_ = e.line;
      return CallMethod(env_, receiver, callee.text, arguments);
    }
    line_ = callee.line;
    const Value function = GetAttribute(env_, receiver, callee.text);
    return Call(function, EvaluateArguments(e.arguments, scope));
  }
  const Value function = Evaluate(callee, scope);
  Arguments arguments = EvaluateArguments(e.arguments, scope);
  line_ = e.line;
  return Call(function, std::move(arguments));
}

Value Interpreter::EvaluateFilter(const Expression& e, Scope& scope) {
  const Value value = e.parts[0] != nullptr ? Evaluate(*e.parts[0], scope) : std::exchange(piped_, Value());
  const Arguments arguments = EvaluateArguments(e.arguments, scope);
  line_ = e.line;
  if (e.kind == ExpressionKind::kTest) return Value(CallTest(env_, e.text, value, arguments));
  return CallFilter(env_, e.text, value, arguments);
}

Value Interpreter::EvaluateUnary(const Expression& e, Scope& scope) {
  const Value value = Evaluate(*e.parts[0], scope);
  if (e.text == "not") return Value(!IsTrue(value));
  return Sign(value, e.text == "-");
}

Value Interpreter::EvaluateBinary(const Expression& e, Scope& scope) {
  const Value left = Evaluate(*e.parts[0], scope);
  const Value right = Evaluate(*e.parts[1], scope);
  line_ = e.line;
  return e.kind == ExpressionKind::kItem ? GetItem(env_, left, right) : Arithmetic(env_, e.text, left, right);
}

Value Interpreter::EvaluateConcat(const Expression& e, Scope& scope) {
  Text text;
  for (const ExpressionPtr& part : e.parts) AppendStr(env_, Evaluate(*part, scope), text);
  return env_.heap().NewText(std::move(text));
}

Value Interpreter::EvaluateCompare(const Expression& e, Scope& scope) {
  Value left = Evaluate(*e.parts[0], scope);
  for (size_t i = 0; i < e.texts.size(); ++i) {
    Value right = Evaluate(*e.parts[i + 1], scope);
    line_ = e.line;
    const std::string& op = e.texts[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = Equal(left, right, &env_.budget()) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = Contains(env_, right, left) == (op == "in");
    } else if (op == "<") {
      holds = Less(env_, left, right, op);
    } else if (op == ">") {
      holds = Less(env_, right, left, op);
    } else {  // not the opposite of > and <: numbers that are none are neither
      holds = (op == "<=" ? Less(env_, left, right, op) : Less(env_, right, left, op)) ||
              Equal(left, right, &env_.budget());
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::EvaluateConditional(const Expression& e, Scope& scope) {
  if (IsTrue(Evaluate(*e.parts[1], scope))) return Evaluate(*e.parts[0], scope);
  if (e.parts[2] != nullptr) return Evaluate(*e.parts[2], scope);
  return Heap::NewUndefined(
      Concat("the inline if-expression on line ", e.line, " evaluated to false and no else section was defined."));
}

Arguments Interpreter::EvaluateArguments(const CallArguments& given, Scope& scope) {
  Arguments arguments;
  for (const ExpressionPtr& argument : given.positional) arguments.positional.push_back(Evaluate(*argument, scope));
  if (given.more_positional != nullptr) {
    for (Value& item : ItemsOf(env_, Evaluate(*given.more_positional, scope))) {
      arguments.positional.push_back(std::move(item));
    }
  }
  for (const CallArguments::Named& named : given.named) {
    arguments.named.emplace_back(named.name, Evaluate(*named.value, scope));
  }
  if (given.more_named == nullptr) return arguments;
  const Value more = Evaluate(*given.more_named, scope);
  if (!more.Is(Kind::kDict)) Fail("argument after ** must be a mapping");
  for (const auto& [key, value] : more.dict().entries) {
    arguments.named.emplace_back(NeedText(key, "a keyword").bytes(), value);
  }
  return arguments;
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  const Nested nested(&depth_, env_.budget());
  if (callee.Is(Kind::kUndefined)) Fail(callee.why_undefined());
  if (callee.Is(Kind::kMethod)) return CallMethod(env_, callee.method().receiver, callee.method().name, arguments);
  if (callee.Is(Kind::kObject)) {
    Object* const object = callee.object();
    if (const Macro* macro = object->As<Macro>()) return CallMacro(*macro, std::move(arguments));
    if (const Function* function = object->As<Function>()) return CallFunction(env_, *function, arguments);
    if (object->As<Loop>() != nullptr) return CallLoop(object, arguments);
    if (Joiner* joiner = object->As<Joiner>()) {
      return std::exchange(joiner->used, true) ? joiner->separator : env_.heap().NewText("", Origin::kTemplate);
    }
  }
  Fail(Concat("'", TypeName(callee), "' object is not callable"));
}

Value Interpreter::CallLoop(Object* object, const Arguments& arguments) {
  const Loop& loop = *object->As<Loop>();
  if (loop.statement == nullptr) Fail("The loop must have the 'recursive' marker to be called recursively.");
  std::vector<Value> items = ItemsOf(env_, *Bind(arguments, "loop", {"iterable"}, 1)[0]);
  const int depth = loop.depth + 1;
  Text text;
  Text* const outer = std::exchange(out_, &text);
  RunItems(*loop.statement, *loop.scope, std::move(items), depth);
  out_ = outer;
  return env_.heap().NewText(std::move(text));
}

void Interpreter::BindParameters(const Macro& macro, Arguments arguments, Scope& scope) {
  const Statement& statement = *macro.statement;
  const auto& parameters = statement.parameters;
  std::vector<Value> more(
      arguments.positional.begin() + static_cast<int64_t>(std::min(arguments.positional.size(), parameters.size())),
      arguments.positional.end());
  if (!more.empty() && !statement.uses_varargs) {
    Fail(Concat("macro '", statement.name, "' takes not more than ", parameters.size(), " argument(s)"));
  }
  const auto take = [&](const std::string& name, Value* value) {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& named) { return named.first == name; });
    if (found == arguments.named.end()) return false;
    *value = std::move(found->second);
    arguments.named.erase(found);
    return true;
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    Value value;
    const bool named = take(parameters[i].name, &value);
    if (named && i < arguments.positional.size()) {
      Fail(Concat("macro '", statement.name, "' got two values for '", parameters[i].name, "'"));
    }
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (!named && parameters[i].default_value != nullptr) {
      value = Evaluate(*parameters[i].default_value, scope);
    } else if (!named) {
      value = Heap::NewUndefined(Concat("parameter '", parameters[i].name, "' was not provided"));
    }
    scope.Set(parameters[i].symbol, std::move(value));
  }
  const auto symbol_of = [&](std::string_view name) {
    return static_cast<Symbol>(std::find(program_.names.begin(), program_.names.end(), name) - program_.names.begin());
  };
  if (Value caller; statement.uses_caller) {
    if (!take("caller", &caller)) caller = Heap::NewUndefined("No caller defined");
    scope.Set(symbol_of("caller"), std::move(caller));
  }
  if (statement.uses_varargs) {
    scope.Set(symbol_of("varargs"), env_.heap().NewList(std::move(more), ListKind::kTuple));
  }
  if (!arguments.named.empty() && !statement.uses_kwargs) {
    Fail(Concat("macro '", statement.name, "' takes no keyword argument '", arguments.named[0].first, "'"));
  }
  if (!statement.uses_kwargs) return;
  DictBuilder named;
  for (auto& [name, value] : arguments.named) {
    named.Set(env_.heap().NewText(name, Origin::kTemplate), std::move(value));
  }
  scope.Set(symbol_of("kwargs"), env_.heap().NewDict(std::move(named)));
}

Value Interpreter::CallMacro(const Macro& macro, Arguments arguments) {
  const Statement& statement = *macro.statement;
  Scope on_stack(macro.scope);
  Scope* const scope = statement.keeps_scope ? env_.NewScope(macro.scope) : &on_stack;
  BindParameters(macro, std::move(arguments), *scope);
  Text text;
  Text* const outer = std::exchange(out_, &text);
  RunBody(statement.body, *scope);
  out_ = outer;
  return env_.heap().NewText(std::move(text));
}

}  // namespace sluice::engine::jinja
