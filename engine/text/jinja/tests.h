// The tests of jinja2: `value is name(arguments)`.
#pragma once

#include <string_view>

#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

using Test = bool (*)(Environment& env, const Value& value, const Arguments& arguments);

// Null: there is none.
Test FindTest(std::string_view name);
// Throws Error if there is none.
bool CallTest(Environment& env, std::string_view name, const Value& value, const Arguments& arguments);

}  // namespace sluice::engine::jinja
