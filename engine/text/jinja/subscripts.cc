// Attributes, items and slices of values.
#include <algorithm>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

// "dict object" as jinja2 calls it in the message of an undefined value.
Value Missing(const Value& value, std::string_view name) {
  const std::string type = value.Is(Kind::kNone) ? "None" : Concat(TypeName(value), " object");
  return Heap::NewUndefined(Concat("'", type, "' has no attribute '", name, "'"));
}

Value MissingItem(const Value& value, const Value& key) {
  if (key.Is(Kind::kText)) return Missing(value, key.bytes());
  const std::string type = value.Is(Kind::kNone) ? "None" : Concat(TypeName(value), " object");
  const std::string name = key.IsIntegral() ? Concat(key.integer()) : "that";
  return Heap::NewUndefined(Concat("'", type, "' has no element ", name));
}

Value LoopAttribute(Environment& env, const Value& value, const Loop& loop, const std::string& name) {
  const auto size = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{loop.depth});
  if (name == "depth0") return Value(int64_t{loop.depth - 1});
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index - 1] : Heap::NewUndefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? loop.items[loop.index + 1] : Heap::NewUndefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") return env.heap().NewMethod(value, name);
  return Missing(value, name);
}

Value ObjectAttribute(Environment& env, const Value& value, const std::string& name) {
  Object* const object = value.object();
  if (const Namespace* space = object->As<Namespace>()) {
    for (const auto& [key, item] : space->attributes) {
      if (key == name) return item;
    }
  } else if (const Loop* loop = object->As<Loop>()) {
    return LoopAttribute(env, value, *loop, name);
  } else if (const Macro* macro = object->As<Macro>()) {
    if (name == "name") return env.heap().NewText(macro->statement->name, Origin::kTemplate);
  } else if (const Cycler* cycler = object->As<Cycler>()) {
    if (name == "current") return cycler->items[cycler->at];
    if (name == "next" || name == "reset") return env.heap().NewMethod(value, name);
  }
  return Missing(value, name);
}

// Bytes where characters begin, and the end.
std::vector<size_t> CharacterBegins(const std::string& bytes) {
  std::vector<size_t> begins;
  for (size_t at = 0; at < bytes.size(); at += CharacterAt(bytes, at).length) begins.push_back(at);
  begins.push_back(bytes.size());
  return begins;
}

Value Index(Environment& env, const Value& value, const Value& key) {
  int64_t index = key.integer();
  const int64_t size = LengthOf(value);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return MissingItem(value, key);
  if (value.Is(Kind::kList)) return value.list().items[static_cast<size_t>(index)];
  const std::string& bytes = value.bytes();
  env.budget().StepBytes(bytes.size());
  const size_t begin = ByteOfCharacter(bytes, static_cast<size_t>(index));
  return env.heap().NewText(value.text().Sub(begin, begin + CharacterAt(bytes, begin).length));
}

struct Range {
  int64_t begin, end, step;
};

// As Python's slice.indices.
Range Resolve(const Value& begin, const Value& end, const Value& step, int64_t size) {
  const auto given = [](const Value& v) { return !v.Is(Kind::kNone); };
  for (const Value* part : {&begin, &end, &step}) {
    if (given(*part) && !part->IsIntegral()) Fail("slice indices must be integers or None");
  }
  Range range{0, 0, given(step) ? step.integer() : 1};
  if (range.step == 0) Fail("slice step cannot be zero");
  range.step = std::clamp<int64_t>(range.step, -(size + 1), size + 1);
  const bool back = range.step < 0;
  const int64_t low = back ? -1 : 0, high = back ? size - 1 : size;
  const auto clip = [&](const Value& v) {
    const int64_t at = v.integer() < 0 ? std::max(v.integer(), -size - 1) + size : v.integer();
    return std::clamp(at, low, std::max(low, high));
  };
  range.begin = given(begin) ? clip(begin) : back ? high : low;
  range.end = given(end) ? clip(end) : back ? low : high;
  return range;
}

template <typename Visit>
void ForEach(const Range& range, const Visit& visit) {
  for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
    visit(static_cast<size_t>(i));
  }
}

}  // namespace

Value GetAttribute(Environment& env, const Value& value, const std::string& name) {
  if (value.Is(Kind::kUndefined)) Fail(value.why_undefined());
  if (value.Is(Kind::kObject)) return ObjectAttribute(env, value, name);
  if (HasMethod(value, name)) return env.heap().NewMethod(value, name);
  if (name.starts_with("__") && name.ends_with("__") && name.size() > 4) {
    return Heap::NewUndefined(Concat("access to attribute '", name, "' of '", TypeName(value), "' object is unsafe."));
  }
  if (value.Is(Kind::kDict)) {
    if (const Value* found = value.dict().Find(name)) return *found;
  }
  return Missing(value, name);
}

Value GetItem(Environment& env, const Value& value, const Value& key) {
  switch (value.kind()) {
    case Kind::kUndefined:
      Fail(value.why_undefined());
    case Kind::kDict:
      if (!key.Is(Kind::kText)) env.budget().Step(static_cast<int64_t>(value.dict().entries.size()));
      if (const Value* found = value.dict().Find(key)) return *found;
      break;
    case Kind::kText:
      if (key.IsIntegral()) return Index(env, value, key);
      break;
    case Kind::kList:
      if (key.IsIntegral() && value.list().kind <= ListKind::kRange) return Index(env, value, key);
      break;
    case Kind::kObject:
      if (key.Is(Kind::kText)) return ObjectAttribute(env, value, key.bytes());
      break;
    default:
      break;
  }
  if (key.Is(Kind::kText) && HasMethod(value, key.bytes())) return env.heap().NewMethod(value, key.bytes());
  return MissingItem(value, key);
}

Value GetSlice(Environment& env, const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.Is(Kind::kUndefined)) Fail(value.why_undefined());
  if (value.Is(Kind::kText)) {
    const Text& text = value.text();
    env.budget().StepBytes(text.size() * 2);
    const std::vector<size_t> begins = CharacterBegins(text.bytes());
    const Range range = Resolve(begin, end, step, static_cast<int64_t>(begins.size()) - 1);
    if (range.step == 1) {
      const auto last = static_cast<size_t>(std::max(range.begin, range.end));
      return env.heap().NewText(text.Sub(begins[static_cast<size_t>(range.begin)], begins[last]));
    }
    Text part;
    ForEach(range, [&](size_t i) { part.Append(text, begins[i], begins[i + 1]); });
    return env.heap().NewText(std::move(part));
  }
  if (!value.Is(Kind::kList) || value.list().kind > ListKind::kRange) {
    Fail(Concat("'", TypeName(value), "' object is not subscriptable"));
  }
  const ListData& list = value.list();
  std::vector<Value> items;
  ForEach(Resolve(begin, end, step, static_cast<int64_t>(list.items.size())),
          [&](size_t i) { items.push_back(list.items[i]); });
  return env.heap().NewList(std::move(items), list.kind);
}

}  // namespace sluice::engine::jinja
