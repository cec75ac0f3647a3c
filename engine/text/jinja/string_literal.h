// What a string literal of a template says: Python's escapes.
#pragma once

#include <string>
#include <string_view>

namespace sluice::engine::jinja {

// Without the quotes. Throws Error for escapes that are broken or name no character.
std::string Unescape(std::string_view literal, int line);

}  // namespace sluice::engine::jinja
