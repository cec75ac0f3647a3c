// The methods of strings, mappings, lists and loops.
//
// Promises: a method that Python's type has and that is not here is an error when it is called, not undefined, so that
// `x.name` means what it means in Python. Methods that change a list or mapping are refused, as in the sandbox.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

bool HasMethod(const Value& value, std::string_view name);
Value CallMethod(Environment& env, const Value& receiver, const std::string& name, const Arguments& arguments);

// By the kind of the receiver.
Value CallTextMethod(Environment& env, const Text& text, const std::string& name, const Arguments& arguments);
Value CallDictMethod(Environment& env, const DictData& dict, const std::string& name, const Arguments& arguments);
Value CallListMethod(Environment& env, const ListData& list, const std::string& name, const Arguments& arguments);

}  // namespace sluice::engine::jinja
