// The arguments of a call, and how what is called takes them by place or by name.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One entry for each name, null where nothing was given. Throws Error, naming `callee`, for arguments that are too
// many, unknown, given twice, or missing from the first `required`.
std::vector<const Value*> Bind(const Arguments& arguments, std::string_view callee,
                               std::initializer_list<std::string_view> names, size_t required = 0);

}  // namespace sluice::engine::jinja
