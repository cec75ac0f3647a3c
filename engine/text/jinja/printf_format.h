// Python's "%s of %d" % (x, y).
#pragma once

#include "engine/text/jinja/environment.h"
#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

// Conversions s, r, d, i, u, c, x, X, o, e, E, f, F, g, G and %, with flags, width, precision and names in parentheses.
Value PrintfFormat(Environment& env, const Text& format, const Value& arguments);

}  // namespace sluice::engine::jinja
