#include "engine/text/jinja/filters.h"

#include <charconv>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/text_edits.h"

namespace sluice::engine::jinja {

Filter FindFilter(std::string_view name) {
  for (const auto find : {FindTextFilter, FindListFilter, FindSelectFilter, FindNumberFilter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

Value CallFilter(Environment& env, std::string_view name, const Value& value, const Arguments& arguments) {
  const Filter filter = FindFilter(name);
  if (filter == nullptr) Fail(Concat("No filter named '", name, "'."));
  env.budget().Step();
  return filter(env, value, arguments);
}

Value GetByPath(Environment& env, const Value& item, const Value& path) {
  if (path.IsIntegral()) return GetItem(env, item, path);
  const std::string_view names = NeedText(path, "an attribute").bytes();
  Value value = item;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find('.', at), names.size());
    const std::string_view name = names.substr(at, end - at);
    int64_t index = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_number = error == std::errc{} && stop == name.data() + name.size() && name[0] != '-';
    value = GetItem(env, value, is_number ? Value(index) : env.heap().NewText(std::string(name), Origin::kTemplate));
    at = end + 1;
  }
  return value;
}

Value SortKey(Environment& env, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key = attribute != nullptr && !attribute->Is(Kind::kNone) ? GetByPath(env, item, *attribute) : item;
  if (case_sensitive || !key.Is(Kind::kText)) return key;
  env.budget().StepBytes(key.text().size() * 4);
  return env.heap().NewText(ChangeCase(key.text(), Case::kLower));
}

}  // namespace sluice::engine::jinja
