#include "engine/text/jinja/operators.h"

#include <algorithm>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      switch (value.list().kind) {
        case ListKind::kTuple:
          return "tuple";
        case ListKind::kRange:
          return "range";
        case ListKind::kKeys:
          return "dict_keys";
        case ListKind::kValues:
          return "dict_values";
        case ListKind::kItems:
          return "dict_items";
        case ListKind::kList:
          return "list";
      }
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kIterator:
      return "generator";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kObject:
      return value.object()->As<Namespace>() != nullptr ? "Namespace"
             : value.object()->As<Loop>() != nullptr    ? "LoopContext"
             : value.object()->As<Macro>() != nullptr   ? "Macro"
                                                        : "function";
  }
  return "";
}

int64_t LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return static_cast<int64_t>(CountCharacters(value.bytes()));
    case Kind::kList:
      return static_cast<int64_t>(value.list().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kObject:
      if (const Loop* loop = value.object()->As<Loop>()) return static_cast<int64_t>(loop->items.size());
      return -1;
    default:
      return -1;
  }
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kText:
      return !value.text().empty();
    case Kind::kList:
      return !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kIterator:
    case Kind::kMethod:
    case Kind::kObject:
      return true;
  }
  return false;
}

namespace {

bool EqualLists(const ListData& a, const ListData& b, Budget* budget) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool EqualDicts(const DictData& a, const DictData& b, Budget* budget) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const DictData::Entry& entry) {
    const Value* const other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other, budget);
  });
}

int CompareNumbers(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  return a.real() < b.real() ? -1 : a.real() > b.real() ? 1 : a.real() == b.real() ? 0 : 2;  // 2: not a number
}

}  // namespace

bool Equal(const Value& a, const Value& b, Budget* budget) {
  if (budget != nullptr) budget->Step();
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kText:
      if (a.text().size() != b.text().size()) return false;
      if (budget != nullptr) budget->StepBytes(a.text().size());
      return a.bytes() == b.bytes();
    case Kind::kList:
      return &a.list() == &b.list() || EqualLists(a.list(), b.list(), budget);
    case Kind::kDict:
      return &a.dict() == &b.dict() || EqualDicts(a.dict(), b.dict(), budget);
    default:
      return a.SameAs(b);
  }
}

bool Less(Environment& env, const Value& a, const Value& b, std::string_view op) {
  env.budget().Step();
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == -1;
  if (a.Is(Kind::kText) && b.Is(Kind::kText)) {
    env.budget().StepBytes(std::min(a.text().size(), b.text().size()));
    return a.bytes() < b.bytes();
  }
  if (a.Is(Kind::kList) && b.Is(Kind::kList) && a.list().kind == b.list().kind && a.list().kind <= ListKind::kTuple) {
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!Equal(left[i], right[i], &env.budget())) return Less(env, left[i], right[i], op);
    }
    return left.size() < right.size();
  }
  if (a.Is(Kind::kUndefined)) Fail(a.why_undefined());
  if (b.Is(Kind::kUndefined)) Fail(b.why_undefined());
  Fail(Concat("'", op, "' not supported between instances of '", TypeName(a), "' and '", TypeName(b), "'"));
}

bool Contains(Environment& env, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      if (!item.Is(Kind::kText)) {
        Fail(Concat("'in <string>' requires string as left operand, not ", TypeName(item)));
      }
      env.budget().StepBytes(container.text().size());
      return container.bytes().find(item.bytes()) != std::string::npos;
    case Kind::kDict:
      NeedHashable(item);
      if (!item.Is(Kind::kText)) env.budget().Step(static_cast<int64_t>(container.dict().entries.size()));
      return container.dict().Find(item) != nullptr;
    default:
      break;
  }
  if (!IsIterable(container)) Fail(Concat("argument of type '", TypeName(container), "' is not iterable"));
  if (container.Is(Kind::kList)) {
    const auto& items = container.list().items;
    return std::any_of(items.begin(), items.end(), [&](const Value& v) { return Equal(v, item, &env.budget()); });
  }
  const std::vector<Value> items = ItemsOf(env, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return Equal(v, item, &env.budget()); });
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

std::vector<Value> ItemsOf(Environment& env, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kText: {
      const Text& text = value.text();
      for (size_t at = 0; at < text.size();) {
        const size_t end = at + CharacterAt(text.bytes(), at).length;
        items.push_back(env.heap().NewText(text.Sub(at, end)));
        at = end;
      }
      return items;
    }
    case Kind::kList:
      env.budget().StepBytes(value.list().items.size() * sizeof(Value));
      return value.list().items;
    case Kind::kDict:
      env.budget().StepBytes(value.dict().entries.size() * sizeof(Value));
      for (const DictData::Entry& entry : value.dict().entries) items.push_back(entry.first);
      return items;
    case Kind::kIterator: {
      IteratorData& iterator = value.iterator();
      env.budget().StepBytes(iterator.items.size() * sizeof(Value));
      items.assign(iterator.items.begin() + static_cast<int64_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      return items;
    }
    default:
      Fail(Concat("'", TypeName(value), "' object is not iterable"));
  }
}

void NeedHashable(const Value& value) {
  const bool is_list = value.Is(Kind::kList) && value.list().kind != ListKind::kTuple;
  if (is_list || value.Is(Kind::kDict)) Fail(Concat("unhashable type: '", TypeName(value), "'"));
}

int64_t NeedInteger(const Value& value, std::string_view what) {
  if (!value.IsIntegral()) Fail(Concat(what, " must be an integer, not '", TypeName(value), "'"));
  return value.integer();
}

const Text& NeedText(const Value& value, std::string_view what) {
  if (!value.Is(Kind::kText)) Fail(Concat(what, " must be a string, not '", TypeName(value), "'"));
  return value.text();
}

}  // namespace sluice::engine::jinja
