// Filters that take a list in order, or put one in order.
#include <algorithm>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

Value ListFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "list", {});
  return env.heap().NewList(ItemsOf(env, value));
}

Value FirstFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "first", {});
  if (value.Is(Kind::kIterator)) {
    IteratorData& iterator = value.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  } else if (value.Is(Kind::kList) && !value.list().items.empty()) {
    return value.list().items[0];
  } else if (value.Is(Kind::kText) && !value.text().empty()) {
    return env.heap().NewText(value.text().Sub(0, CharacterAt(value.bytes(), 0).length));
  } else if (const std::vector<Value> items = ItemsOf(env, value); !items.empty()) {
    return items[0];
  }
  return Heap::NewUndefined("No first item, sequence was empty.");
}

Value LastFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "last", {});
  if (value.Is(Kind::kIterator)) Fail("'generator' object is not reversible");
  if (value.Is(Kind::kList) && !value.list().items.empty()) return value.list().items.back();
  const std::vector<Value> items = ItemsOf(env, value);
  return items.empty() ? Heap::NewUndefined("No last item, sequence was empty.") : items.back();
}

Value ReverseFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "reverse", {});
  if (value.Is(Kind::kIterator)) Fail("argument must be iterable");
  std::vector<Value> items = ItemsOf(env, value);
  std::reverse(items.begin(), items.end());
  if (!value.Is(Kind::kText)) return env.heap().NewIterator(std::move(items));
  Text text;
  for (const Value& item : items) text.Append(item.text());
  return env.heap().NewText(std::move(text));
}

// With `by`, a list of attributes with commas between them.
std::vector<Value> KeysOf(Environment& env, const Value& item, const Value* attribute, bool case_sensitive) {
  if (attribute == nullptr || !attribute->Is(Kind::kText)) return {SortKey(env, item, attribute, case_sensitive)};
  std::vector<Value> keys;
  std::string_view names = attribute->bytes();
  while (true) {
    const size_t end = std::min(names.find(','), names.size());
    const Value name = env.heap().NewText(std::string(names.substr(0, end)), Origin::kTemplate);
    keys.push_back(SortKey(env, item, &name, case_sensitive));
    if (end == names.size()) return keys;
    names.remove_prefix(end + 1);
  }
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

// Python compares lists of keys for being equal first, and single keys never.
void SortByKeys(Environment& env, std::vector<Keyed>& items, bool reverse, bool single_key) {
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (single_key) return Less(env, a.keys[0], b.keys[0]);
    for (size_t i = 0; i < a.keys.size(); ++i) {
      if (!Equal(a.keys[i], b.keys[i], &env.budget())) return Less(env, a.keys[i], b.keys[i]);
    }
    return false;
  };
  // Python keeps the order of equal items also when it sorts in reverse.
  std::stable_sort(items.begin(), items.end(),
                   [&](const Keyed& a, const Keyed& b) { return reverse ? less(b, a) : less(a, b); });
}

std::vector<Keyed> WithKeys(Environment& env, const Value& value, const Value* attribute, bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (Value& item : ItemsOf(env, value)) {
    std::vector<Value> keys = KeysOf(env, item, attribute, case_sensitive);
    keyed.push_back({std::move(keys), std::move(item)});
  }
  return keyed;
}

std::vector<Value> ItemsOfKeyed(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& k : keyed) items.push_back(std::move(k.item));
  return items;
}

Value SortFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> keyed = WithKeys(env, value, given[2], given[1] != nullptr && IsTrue(*given[1]));
  SortByKeys(env, keyed, given[0] != nullptr && IsTrue(*given[0]), /*single_key=*/false);
  return env.heap().NewList(ItemsOfKeyed(std::move(keyed)));
}

Value DictSortFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = given[1] != nullptr ? NeedText(*given[1], "by").bytes() : "key";
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  if (!value.Is(Kind::kDict)) Fail(Concat("'", TypeName(value), "' object has no attribute 'items'"));
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict().entries) {
    const Value sort_key = SortKey(env, by == "key" ? key : item, nullptr, given[0] != nullptr && IsTrue(*given[0]));
    keyed.push_back({{sort_key}, env.heap().NewList({key, item}, ListKind::kTuple)});
  }
  SortByKeys(env, keyed, given[2] != nullptr && IsTrue(*given[2]), /*single_key=*/true);
  return env.heap().NewList(ItemsOfKeyed(std::move(keyed)));
}

template <bool kMax>
Value ExtremeFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, kMax ? "max" : "min", {"case_sensitive", "attribute"});
  std::vector<Keyed> keyed = WithKeys(env, value, given[1], given[0] != nullptr && IsTrue(*given[0]));
  if (keyed.empty()) return Heap::NewUndefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    const Value& a = keyed[kMax ? best : i].keys[0];
    const Value& b = keyed[kMax ? i : best].keys[0];
    if (Less(env, a, b, kMax ? ">" : "<")) best = i;
  }
  return keyed[best].item;
}

Value UniqueFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> seen, items;
  for (const Value& item : ItemsOf(env, value)) {
    const Value key = SortKey(env, item, given[1], given[0] != nullptr && IsTrue(*given[0]));
    NeedHashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return Equal(s, key, &env.budget()); })) continue;
    seen.push_back(key);
    items.push_back(item);
  }
  return env.heap().NewIterator(std::move(items));
}

Value SumFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "sum", {"attribute", "start"});
  Value sum = given[1] != nullptr ? *given[1] : Value(int64_t{0});
  const bool by_attribute = given[0] != nullptr && !given[0]->Is(Kind::kNone);
  for (const Value& item : ItemsOf(env, value)) {
    sum = Arithmetic(env, "+", sum, by_attribute ? GetByPath(env, item, *given[0]) : item);
  }
  return sum;
}

Value ItemsFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "items", {});
  if (value.Is(Kind::kUndefined)) return env.heap().NewIterator({});
  if (!value.Is(Kind::kDict)) Fail("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, item] : value.dict().entries) {
    items.push_back(env.heap().NewList({key, item}, ListKind::kTuple));
  }
  return env.heap().NewIterator(std::move(items));
}

Value BatchFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = NeedInteger(*given[0], "linecount");
  if (size < 1 || size > 100'000) Fail("batch: the size of a line is out of range");
  std::vector<Value> lines, line;
  for (Value& item : ItemsOf(env, value)) {
    if (static_cast<int64_t>(line.size()) == size) lines.push_back(env.heap().NewList(std::exchange(line, {})));
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (given[1] != nullptr && !given[1]->Is(Kind::kNone)) line.resize(static_cast<size_t>(size), *given[1]);
    lines.push_back(env.heap().NewList(std::move(line)));
  }
  return env.heap().NewIterator(std::move(lines));
}

Value SliceFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "slice", {"slices", "fill_with"}, 1);
  const int64_t slices = NeedInteger(*given[0], "slices");
  if (slices < 1 || slices > 100'000) Fail("slice: the number of slices is out of range");
  const std::vector<Value> items = ItemsOf(env, value);
  const size_t each = items.size() / static_cast<size_t>(slices);
  const size_t longer = items.size() % static_cast<size_t>(slices);
  std::vector<Value> lists;
  size_t at = 0;
  for (size_t i = 0; i < static_cast<size_t>(slices); ++i) {
    const size_t end = at + each + (i < longer ? 1 : 0);
    std::vector<Value> list(items.begin() + static_cast<int64_t>(at), items.begin() + static_cast<int64_t>(end));
    if (given[1] != nullptr && !given[1]->Is(Kind::kNone) && i >= longer) list.push_back(*given[1]);
    lists.push_back(env.heap().NewList(std::move(list)));
    at = end;
  }
  return env.heap().NewIterator(std::move(lists));
}

Value GroupByFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = given[2] != nullptr && IsTrue(*given[2]);
  std::vector<Keyed> keyed;
  std::vector<Value> names;  // as they stand, beside the keys in lower case
  for (Value& item : ItemsOf(env, value)) {
    Value name = GetByPath(env, item, *given[0]);
    if (name.Is(Kind::kUndefined) && given[1] != nullptr) name = *given[1];
    const Value key = SortKey(env, name, nullptr, case_sensitive);
    keyed.push_back({{key}, env.heap().NewList({name, item})});
  }
  SortByKeys(env, keyed, /*reverse=*/false, /*single_key=*/true);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < keyed.size() && Equal(keyed[first].keys[0], keyed[i].keys[0], &env.budget()); ++i) {
      members.push_back(keyed[i].item.list().items[1]);
    }
    groups.push_back(env.heap().NewList({keyed[first].item.list().items[0], env.heap().NewList(std::move(members))},
                                        ListKind::kTuple));
  }
  return env.heap().NewList(std::move(groups));
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"list", ListFilter},     {"first", FirstFilter},       {"last", LastFilter},          {"reverse", ReverseFilter},
    {"sort", SortFilter},     {"dictsort", DictSortFilter}, {"min", ExtremeFilter<false>}, {"max", ExtremeFilter<true>},
    {"unique", UniqueFilter}, {"sum", SumFilter},           {"items", ItemsFilter},        {"batch", BatchFilter},
    {"slice", SliceFilter},   {"groupby", GroupByFilter},
};

}  // namespace

Filter FindListFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
