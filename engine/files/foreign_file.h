// Says what a file is when it isn't GGUF, so that the error names the mistake instead of "bad magic".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace sluice::engine {

// Nullopt if the bytes begin as GGUF does; else the rest of "<file>: ...", one line with the next step.
std::optional<std::string> DescribeForeignFile(std::span<const uint8_t> bytes);

}  // namespace sluice::engine
