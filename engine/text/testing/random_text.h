// Random bytes and text for property tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sluice::engine {

// A new seed for each run, or SLUICE_TEST_SEED to repeat one. Print it with SCOPED_TRACE.
uint64_t TestSeed();

class RandomText {
 public:
  explicit RandomText(uint64_t seed) : random_(seed) {}

  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  // Bytes that often begin, continue or break characters.
  std::string Bytes(int max_length);

  // Well-formed UTF-8: letters, digits, spaces, newlines, marks, Han, emoji, control characters.
  std::string Utf8(int max_length);

  // `text` in pieces, some of them empty.
  std::vector<std::string> Split(const std::string& text);

 private:
  std::mt19937_64 random_;
};

}  // namespace sluice::engine
