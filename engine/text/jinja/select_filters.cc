// Filters that apply another filter or a test to each item of a list.
#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/tests.h"

namespace sluice::engine::jinja {
namespace {

Value MapFilter(Environment& env, const Value& value, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!IsTrue(value)) return env.heap().NewIterator({});  // also what could not be looped over
  if (arguments.positional.empty()) {
    const auto given = Bind(arguments, "map", {"attribute", "default"}, 1);
    for (const Value& item : ItemsOf(env, value)) {
      Value found = GetByPath(env, item, *given[0]);
      if (found.Is(Kind::kUndefined) && given[1] != nullptr) found = *given[1];
      mapped.push_back(std::move(found));
    }
    return env.heap().NewIterator(std::move(mapped));
  }
  const std::string& name = NeedText(arguments.positional[0], "the filter of map").bytes();
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : ItemsOf(env, value)) mapped.push_back(CallFilter(env, name, item, rest));
  return env.heap().NewIterator(std::move(mapped));
}

// select, reject: by a test of the item, or its truth; selectattr, rejectattr: of one of its attributes.
template <bool kKeep, bool kByAttribute>
Value SelectFilter(Environment& env, const Value& value, const Arguments& arguments) {
  if (!IsTrue(value)) return env.heap().NewIterator({});
  const size_t skipped = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < skipped) Fail("Missing parameter for attribute name");
  const bool has_test = arguments.positional.size() > skipped;
  Arguments rest;
  std::string test;
  if (has_test) {
    test = NeedText(arguments.positional[skipped], "the name of a test").bytes();
    rest.positional.assign(arguments.positional.begin() + static_cast<int64_t>(skipped) + 1,
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  std::vector<Value> kept;
  for (const Value& item : ItemsOf(env, value)) {
    env.budget().Step();
    const Value looked_at = kByAttribute ? GetByPath(env, item, arguments.positional[0]) : item;
    if ((has_test ? CallTest(env, test, looked_at, rest) : IsTrue(looked_at)) == kKeep) kept.push_back(item);
  }
  return env.heap().NewIterator(std::move(kept));
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"map", MapFilter},
    {"select", SelectFilter<true, false>},
    {"reject", SelectFilter<false, false>},
    {"selectattr", SelectFilter<true, true>},
    {"rejectattr", SelectFilter<false, true>},
};

}  // namespace

Filter FindSelectFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
