// Names of options as people write them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

// "max_moves" -> "max-moves".
std::string WithDashes(std::string_view name);

// The name that is nearest by insertions, deletions, replacements and swaps of neighbours; empty where none is near.
std::string Nearest(std::string_view name, const std::vector<std::string>& names);

}  // namespace sluice::config
