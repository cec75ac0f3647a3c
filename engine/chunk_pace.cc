#include "engine/chunk_pace.h"

#include <algorithm>
#include <cmath>

namespace sluice::engine {
namespace {

constexpr double kDown = 0.3, kUp = 0.02;
constexpr double kMost = 1e6;

// Near the lower end of the values: what lasted longer was interrupted, and smaller chunks would not have helped.
void Follow(double value, double& low) {
  low += (low == 0 ? 1.0 : value < low ? kDown : kUp) * (value - low);
}

}  // namespace

double ChunkPace::DecodeSeconds(int rows) const {
  if (decode_rows_ == 0) return 0;
  return decode_seconds_ * std::sqrt(double(rows) / decode_rows_);
}

void ChunkPace::Report(int decode_rows, int chunk_tokens, double seconds) {
  if (chunk_tokens == 0) {
    if (decode_rows == 0) return;
    Follow(decode_rows, decode_rows_);
    Follow(seconds, decode_seconds_);
    return;
  }
  // Few tokens tell little: what the rest of the step takes is only guessed.
  if (chunk_tokens < kLeast) return;
  Follow(std::max(seconds - DecodeSeconds(decode_rows), 0.0) / chunk_tokens, token_seconds_);
}

int ChunkPace::Tokens(int decode_rows) const {
  if (token_seconds_ == 0) return first_;
  const double room = (target_ - DecodeSeconds(decode_rows)) / token_seconds_;
  return int(std::clamp(room, double(kLeast), kMost));
}

}  // namespace sluice::engine
