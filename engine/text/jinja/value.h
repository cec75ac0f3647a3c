// The values of a template: those of Python that JSON and Jinja have.
//
// Promises: texts, lists and mappings never change once made (the sandbox that templates are written for forbids it),
// so they are shared and have no cycles. What changes (namespaces, loops, macros) belongs to the rendering (objects.h);
// values only point at it and must not outlive it. The memory of all values counts against the rendering's budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/text.h"

namespace sluice::engine::jinja {

class Value;
struct TextData;
struct ListData;
struct DictData;
struct IteratorData;
struct MethodData;
struct Object;

struct Undefined {
  std::shared_ptr<const std::string> why;  // what using it says: "'x' is undefined"
};
struct None {};

enum class Kind : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kText, kList, kDict, kIterator, kMethod, kObject };

class Value {
 public:
  Value() = default;  // undefined
  explicit Value(Undefined undefined) : rep_(std::move(undefined)) {}
  explicit Value(None none) : rep_(none) {}
  explicit Value(bool b) : rep_(b) {}
  explicit Value(int64_t n, Origin origin = Origin::kTemplate) : rep_(n), origin_(origin) {}
  explicit Value(double x, Origin origin = Origin::kTemplate) : rep_(x), origin_(origin) {}
  explicit Value(std::shared_ptr<const TextData> text) : rep_(std::move(text)) {}
  explicit Value(std::shared_ptr<const ListData> list) : rep_(std::move(list)) {}
  explicit Value(std::shared_ptr<const DictData> dict) : rep_(std::move(dict)) {}
  explicit Value(std::shared_ptr<IteratorData> iterator) : rep_(std::move(iterator)) {}
  explicit Value(std::shared_ptr<const MethodData> method) : rep_(std::move(method)) {}
  explicit Value(Object* object) : rep_(object) {}
  Value(const char*) = delete;

  Kind kind() const { return static_cast<Kind>(rep_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsNumber() const { return Is(Kind::kInt) || Is(Kind::kFloat) || Is(Kind::kBool); }
  bool IsIntegral() const { return Is(Kind::kInt) || Is(Kind::kBool); }  // as in Python, a truth value counts as 0 or 1

  // Each is for its kind only.
  const std::string& why_undefined() const;
  bool boolean() const { return std::get<bool>(rep_); }
  int64_t integer() const { return Is(Kind::kBool) ? int64_t{boolean()} : std::get<int64_t>(rep_); }
  double real() const { return Is(Kind::kFloat) ? std::get<double>(rep_) : static_cast<double>(integer()); }
  const Text& text() const;
  const std::string& bytes() const { return text().bytes(); }
  const ListData& list() const;
  const DictData& dict() const;
  IteratorData& iterator() const;
  const MethodData& method() const;
  Object* object() const { return std::get<Object*>(rep_); }

  // Of a number: whether the conversation holds it, or it was computed from one that it holds.
  Origin origin() const { return origin_; }
  // Whether both are the same object (texts: the same bytes).
  bool SameAs(const Value& other) const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const TextData>, std::shared_ptr<const ListData>,
               std::shared_ptr<const DictData>, std::shared_ptr<IteratorData>, std::shared_ptr<const MethodData>,
               Object*>
      rep_;
  Origin origin_ = Origin::kTemplate;
};

struct TextData {
  Text text;
  Charge charge;
};

// Lists, and what is read like one but written otherwise.
enum class ListKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

struct ListData {
  std::vector<Value> items;
  ListKind kind;
  int nesting;  // 1: nothing nested in it
  Charge charge;
};

struct DictData {
  using Entry = std::pair<Value, Value>;
  const Value* Find(const Value& key) const;  // null: not there
  const Value* Find(std::string_view key) const;
  const Value* Find(const char* key) const { return Find(std::string_view(key)); }

  std::vector<Entry> entries;                      // in their order
  absl::flat_hash_map<std::string, size_t> index;  // of the keys that are text, where there are many
  int nesting;
  Charge charge;
};

// What a generator of Python yields: it can be looked at once, has no length, and is true even if empty.
struct IteratorData {
  std::vector<Value> items;
  size_t next = 0;
  Charge charge;
};

// `value.name`, not called yet.
struct MethodData {
  Value receiver;
  std::string name;
};

// What a mapping is made of: a key that comes again replaces the value and keeps its place, as in Python.
class DictBuilder {
 public:
  void Set(Value key, Value value);

 private:
  friend class Heap;
  std::vector<DictData::Entry> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

// Makes values on a budget; on none for the constants of a parsed template.
class Heap {
 public:
  explicit Heap(Budget* budget) : budget_(budget) {}

  Value NewText(Text text);
  Value NewText(std::string bytes, Origin origin) { return NewText(Text(std::move(bytes), origin)); }
  Value NewList(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value NewDict(DictBuilder entries);
  Value NewIterator(std::vector<Value> items);
  Value NewMethod(Value receiver, std::string name);
  static Value NewUndefined(std::string why);

 private:
  int NestingAround(int inner);

  Budget* budget_;
};

}  // namespace sluice::engine::jinja
