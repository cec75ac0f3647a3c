// The identity of a model's weights: SHA-256, in hex, over the tensors in the order of their names. Each enters as
// name, type, rows and columns (strings with their lengths, numbers as 64-bit little-endian), then its data.
// Independent of the file's order, padding and metadata.
#pragma once

#include <span>
#include <string>

#include "engine/files/gguf.h"

namespace sluice::engine {

std::string HashTensors(std::span<const GgufTensor> tensors);

}  // namespace sluice::engine
