// Values as Python's str() and repr() write them.
//
// Promises: texts keep the origin of their bytes; what is written around them in lists and mappings counts as of the
// conversation, and numbers as of where they come from.
#pragma once

#include <string>

#include "engine/text/jinja/environment.h"
#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

Text Str(Environment& env, const Value& value);
// Appends; saves a copy.
void AppendStr(Environment& env, const Value& value, Text& out);
void AppendRepr(Environment& env, const Value& value, Text& out);

std::string FloatRepr(double value);

}  // namespace sluice::engine::jinja
