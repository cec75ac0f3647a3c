// Python's "{} of {name}".format(...).
#pragma once

#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

// Fields by place, number or name, with attributes and items, !s and !r. Limits: format specifications know fill,
// align, width, precision and the types s, d, f, e, g, x, X, o.
Text StrFormat(Environment& env, const Text& format, const Arguments& arguments);

}  // namespace sluice::engine::jinja
