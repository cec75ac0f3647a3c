// What the operators and subscripts of a template do: Python's semantics.
//
// Throw Error where Python raises, with Python's words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/environment.h"
#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

// As Python and jinja2 call the type of a value: "str", "dict", "NoneType", ...
std::string TypeName(const Value& value);

bool IsTrue(const Value& value);
// A budget is charged for what is looked at.
bool Equal(const Value& a, const Value& b, Budget* budget = nullptr);
// a < b; `op` is for the error.
bool Less(Environment& env, const Value& a, const Value& b, std::string_view op = "<");
bool Contains(Environment& env, const Value& container, const Value& item);

// + - * / // % **
Value Arithmetic(Environment& env, std::string_view op, const Value& a, const Value& b);
Value Sign(const Value& value, bool negative);

// value.name and value[key]: undefined if it isn't there.
Value GetAttribute(Environment& env, const Value& value, const std::string& name);
Value GetItem(Environment& env, const Value& value, const Value& key);
// value[begin:end:step]; the parts may be none.
Value GetSlice(Environment& env, const Value& value, const Value& begin, const Value& end, const Value& step);

// In items or characters; -1 if the value has no length.
int64_t LengthOf(const Value& value);
bool IsIterable(const Value& value);
// The items that a loop over the value sees; a generator is used up.
std::vector<Value> ItemsOf(Environment& env, const Value& value);

// Throws Error for what cannot be a key of a mapping: lists and mappings.
void NeedHashable(const Value& value);

// An int argument of something called `what`.
int64_t NeedInteger(const Value& value, std::string_view what);
const Text& NeedText(const Value& value, std::string_view what);

}  // namespace sluice::engine::jinja
