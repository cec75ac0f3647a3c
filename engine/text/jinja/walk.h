// Visits every statement and every expression of a template.
#pragma once

#include "absl/functional/function_ref.h"
#include "engine/text/jinja/ast.h"

namespace sluice::engine::jinja {

void Walk(const Body& body, absl::FunctionRef<void(const Statement&)> at_statement,
          absl::FunctionRef<void(const Expression&)> at_expression);

}  // namespace sluice::engine::jinja
