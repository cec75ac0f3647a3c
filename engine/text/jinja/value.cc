#include "engine/text/jinja/value.h"

#include <algorithm>

#include "engine/files/concat.h"
#include "engine/text/jinja/operators.h"

namespace sluice::engine::jinja {
namespace {

constexpr size_t kIndexFrom = 9;  // entries; fewer are found sooner by looking at them in turn
constexpr size_t kOverhead = 64;  // bytes of an allocation and of what refers to it

int NestingOf(const Value& value) {
  if (value.Is(Kind::kList)) return value.list().nesting;
  if (value.Is(Kind::kDict)) return value.dict().nesting;
  if (value.Is(Kind::kMethod)) return NestingOf(value.method().receiver);
  if (!value.Is(Kind::kIterator)) return 0;
  int nesting = 0;
  for (const Value& item : value.iterator().items) nesting = std::max(nesting, NestingOf(item));
  return nesting + 1;
}

int DeepestOf(const std::vector<Value>& items) {
  int nesting = 0;
  for (const Value& item : items) nesting = std::max(nesting, NestingOf(item));
  return nesting;
}

}  // namespace

const std::string& Value::why_undefined() const {
  static const std::string kUnknown = "the value is undefined";
  const auto& why = std::get<Undefined>(rep_).why;
  return why != nullptr ? *why : kUnknown;
}
const Text& Value::text() const {
  return std::get<std::shared_ptr<const TextData>>(rep_)->text;
}
const ListData& Value::list() const {
  return *std::get<std::shared_ptr<const ListData>>(rep_);
}
const DictData& Value::dict() const {
  return *std::get<std::shared_ptr<const DictData>>(rep_);
}
IteratorData& Value::iterator() const {
  return *std::get<std::shared_ptr<IteratorData>>(rep_);
}
const MethodData& Value::method() const {
  return *std::get<std::shared_ptr<const MethodData>>(rep_);
}

bool Value::SameAs(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return boolean() == other.boolean();
    case Kind::kInt:
      return integer() == other.integer();
    case Kind::kFloat:
      return false;
    case Kind::kText:
      return bytes() == other.bytes();
    case Kind::kList:
      return &list() == &other.list();
    case Kind::kDict:
      return &dict() == &other.dict();
    case Kind::kIterator:
      return &iterator() == &other.iterator();
    case Kind::kMethod:
      return &method() == &other.method();
    case Kind::kObject:
      return object() == other.object();
  }
  return false;
}

const Value* DictData::Find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(ForAbseil(key));
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const Entry& entry : entries) {
    if (entry.first.Is(Kind::kText) && entry.first.bytes() == key) return &entry.second;
  }
  return nullptr;
}

const Value* DictData::Find(const Value& key) const {
  if (key.Is(Kind::kText)) return Find(key.bytes());
  for (const Entry& entry : entries) {
    if (!entry.first.Is(Kind::kText) && Equal(entry.first, key)) return &entry.second;
  }
  return nullptr;
}

void DictBuilder::Set(Value key, Value value) {
  if (key.Is(Kind::kText)) {
    const auto [at, is_new] = index_.emplace(key.bytes(), entries_.size());
    if (!is_new) {
      entries_[at->second].second = std::move(value);
      return;
    }
  } else {
    for (DictData::Entry& entry : entries_) {
      if (entry.first.Is(Kind::kText) || !Equal(entry.first, key)) continue;
      entry.second = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::move(key), std::move(value));
}

int Heap::NestingAround(int inner) {
  const int limit = budget_ != nullptr ? budget_->limits().nesting : Limits{}.nesting;
  if (inner >= limit) throw Error{ErrorKind::kLimit, "lists and mappings are nested too deeply"};
  return inner + 1;
}

Value Heap::NewText(Text text) {
  const size_t bytes = text.size() + text.template_spans().size() * sizeof(TextSpan) + kOverhead;
  if (budget_ != nullptr) budget_->StepBytes(bytes);
  return Value(std::shared_ptr<const TextData>(new TextData{std::move(text), {budget_, bytes}}));
}

Value Heap::NewList(std::vector<Value> items, ListKind kind) {
  const int nesting = NestingAround(DeepestOf(items));
  const size_t bytes = items.size() * sizeof(Value) + kOverhead;
  if (budget_ != nullptr) budget_->StepBytes(bytes);
  return Value(std::shared_ptr<const ListData>(new ListData{std::move(items), kind, nesting, {budget_, bytes}}));
}

Value Heap::NewDict(DictBuilder dict) {
  int inner = 0;
  size_t bytes = dict.entries_.size() * sizeof(DictData::Entry) + kOverhead;
  for (const DictData::Entry& entry : dict.entries_) {
    inner = std::max({inner, NestingOf(entry.first), NestingOf(entry.second)});
    if (entry.first.Is(Kind::kText)) bytes += entry.first.text().size() + kOverhead;
  }
  const int nesting = NestingAround(inner);
  if (budget_ != nullptr) budget_->StepBytes(bytes);
  if (dict.entries_.size() < kIndexFrom) dict.index_.clear();
  return Value(std::shared_ptr<const DictData>(
      new DictData{std::move(dict.entries_), std::move(dict.index_), nesting, {budget_, bytes}}));
}

Value Heap::NewIterator(std::vector<Value> items) {
  NestingAround(DeepestOf(items));
  const size_t bytes = items.size() * sizeof(Value) + kOverhead;
  if (budget_ != nullptr) budget_->StepBytes(bytes);
  return Value(std::shared_ptr<IteratorData>(new IteratorData{std::move(items), 0, {budget_, bytes}}));
}

Value Heap::NewMethod(Value receiver, std::string name) {
  return Value(std::make_shared<const MethodData>(MethodData{std::move(receiver), std::move(name)}));
}

Value Heap::NewUndefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

}  // namespace sluice::engine::jinja
