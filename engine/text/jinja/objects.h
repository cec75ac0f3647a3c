// What a rendering makes that changes or is called: scopes, namespaces, loops, macros. They belong to its Environment.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

// The variables of a block. Those of the blocks around it can be read through it and not be assigned.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  const Value* Find(Symbol symbol) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      for (const auto& [name, value] : scope->variables_) {
        if (name == symbol) return &value;
      }
    }
    return nullptr;
  }

  void Set(Symbol symbol, Value value) {
    for (auto& [name, old] : variables_) {
      if (name != symbol) continue;
      old = std::move(value);
      return;
    }
    variables_.emplace_back(symbol, std::move(value));
  }

  void Clear() { variables_.clear(); }

 private:
  Scope* parent_;
  std::vector<std::pair<Symbol, Value>> variables_;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;  // of the current one
  int depth = 1;     // of a recursive loop
  std::vector<Value> last_changed;
  bool changed_called = false;
  // Of a recursive loop: what loop(items) runs.
  const Statement* statement = nullptr;
  Scope* scope = nullptr;
};

struct Macro {
  const Statement* statement;  // with name, parameters and body
  Scope* scope;                // around it
};

struct Cycler {
  std::vector<Value> items;
  size_t at = 0;
};

struct Joiner {
  Value separator;
  bool used = false;
};

enum class Function : uint8_t { kRange, kDict, kNamespace, kCycler, kJoiner, kRaiseException, kStrftimeNow };

struct Object {
  std::variant<Namespace, Loop, Macro, Cycler, Joiner, Function> body;

  template <typename T>
  T* As() {
    return std::get_if<T>(&body);
  }
};

}  // namespace sluice::engine::jinja
