// The functions that a template can call: range, dict, namespace, cycler, joiner; and Hugging Face's raise_exception
// and strftime_now.
#pragma once

#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

struct FunctionName {
  const char* name;
  Function function;
};
inline constexpr FunctionName kFunctions[] = {
    {"range", Function::kRange},
    {"dict", Function::kDict},
    {"namespace", Function::kNamespace},
    {"cycler", Function::kCycler},
    {"joiner", Function::kJoiner},
    {"raise_exception", Function::kRaiseException},
    {"strftime_now", Function::kStrftimeNow},
};

Value CallFunction(Environment& env, Function function, const Arguments& arguments);

}  // namespace sluice::engine::jinja
