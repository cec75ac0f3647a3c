#include "engine/text/jinja/arguments.h"

#include <algorithm>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"

namespace sluice::engine::jinja {

std::vector<const Value*> Bind(const Arguments& arguments, std::string_view callee,
                               std::initializer_list<std::string_view> names, size_t required) {
  if (arguments.positional.size() > names.size()) {
    Fail(Concat(callee, "() takes at most ", names.size(), " arguments, ", arguments.positional.size(), " were given"));
  }
  std::vector<const Value*> bound(names.size(), nullptr);
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) Fail(Concat(callee, "() got an unexpected keyword argument '", name, "'"));
    const Value*& place = bound[static_cast<size_t>(found - names.begin())];
    if (place != nullptr) Fail(Concat(callee, "() got multiple values for argument '", name, "'"));
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) Fail(Concat(callee, "() missing argument '", *(names.begin() + i), "'"));
  }
  return bound;
}

}  // namespace sluice::engine::jinja
