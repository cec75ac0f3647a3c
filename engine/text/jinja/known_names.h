// Which filters and tests there are, and the walk over a template that looks for others.
#pragma once

#include <string_view>

#include "engine/text/jinja/ast.h"

namespace sluice::engine::jinja {

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);

// Throws Error for unknown names outside of conditions, as jinja2 does.
void CheckKnownNames(const Body& body);

}  // namespace sluice::engine::jinja
