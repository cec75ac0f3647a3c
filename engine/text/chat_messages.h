// The messages and tools of a request, checked and made into what a chat template expects (see chat_template.h).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/environment.h"
#include "engine/text/template_traits.h"

namespace sluice::engine {

// Errors begin with the field. May throw jinja::Error, as all that makes values does.
absl::StatusOr<jinja::Value> ReadMessages(jinja::Environment& env, std::string_view json, const TemplateTraits& traits);
// None if there are no tools.
absl::StatusOr<jinja::Value> ReadTools(jinja::Environment& env, std::string_view json);

// The text of the last message's content, the last part of several; an error if it is empty.
absl::StatusOr<std::string> FinalText(const jinja::Value& messages);

}  // namespace sluice::engine
