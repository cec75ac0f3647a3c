// Parses a template: the statements and expressions of jinja2 3.1 with loop controls and Hugging Face's `generation`
// tag.
//
// Not supported, with an error that says so: extends, block, include, import, from, autoescape, trans, do.
// Throws Error with the line for what does not parse, for filters and tests that nobody knows (but inside a condition,
// where jinja2 allows them until they are used), and for expressions and statements that are nested too deeply.
#pragma once

#include <string_view>

#include "engine/text/jinja/ast.h"

namespace sluice::engine::jinja {

Program Parse(std::string_view source);

}  // namespace sluice::engine::jinja
