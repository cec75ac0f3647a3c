// A 64-bit checksum of KV bytes, defined so that a CPU and a GPU get the same value in any order of summation:
//
//   sum over i of mix(word[i], i)  +  mix(length, 2^63)      (mod 2^64)
//
// where word[i] is the i-th little-endian 64-bit word, the last one padded with zero bytes. For a fixed index mix is a
// bijection of the word, so every corruption of a single word changes the sum; swapped, repeated or missing words
// change it with probability 1 - 2^-64. Not cryptographic.
#pragma once

#include <cstdint>

namespace sluice::kernels {

inline constexpr uint64_t kIndexStep = 0x9e3779b97f4a7c15u, kMixA = 0xbf58476d1ce4e5b9u, kMixB = 0x94d049bb133111ebu;

constexpr uint64_t IndexKey(uint64_t index) {
  return index * kIndexStep + 0xd1b54a32d192ed03u;
}

constexpr uint64_t Mix(uint64_t word, uint64_t index) {
  uint64_t x = word ^ IndexKey(index);
  x *= kMixA;
  x ^= x >> 32;
  x *= kMixB;
  x ^= x >> 29;
  return x;
}

}  // namespace sluice::kernels
