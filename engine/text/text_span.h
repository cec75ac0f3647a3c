// A range of bytes of a text.
#pragma once

#include <cstddef>

namespace sluice::engine {

struct TextSpan {
  size_t begin = 0;
  size_t end = 0;  // past the last byte

  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

}  // namespace sluice::engine
