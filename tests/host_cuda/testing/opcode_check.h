// Runs translated snippets over every combination of edge values and compares with their meanings in plain C++.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/host_cuda/testing/opcode_types.h"

namespace host_cuda::testing {

// A type of the test, without its C++ type: what keeps two thousand cases quick to compile.
struct TypeOfCase {
  size_t size = 0;  // of an input
  std::vector<unsigned char> (*edges)() = nullptr;
  bool (*same)(const void* stored, const void* expected) = nullptr;
  std::string (*print)(const void* input) = nullptr;
  std::string (*print_result)(const void* stored) = nullptr;
};

template <class T>
TypeOfCase MakeTypeOfCase() {
  using Edge = typename decltype(T::Edges())::value_type;
  using Stored = typename T::stored;
  return {sizeof(Edge),
          [] {
            const auto edges = T::Edges();
            std::vector<unsigned char> bytes(edges.size() * sizeof(Edge));
            std::memcpy(bytes.data(), edges.data(), bytes.size());
            return bytes;
          },
          [](const void* stored, const void* expected) {
            return T::Same(static_cast<typename T::type>(*static_cast<const Stored*>(stored)),
                           static_cast<typename T::type>(*static_cast<const Stored*>(expected)));
          },
          [](const void* input) { return ::testing::PrintToString(*static_cast<const Edge*>(input)); },
          [](const void* stored) { return ::testing::PrintToString(*static_cast<const Stored*>(stored)); }};
}
template <class T>
const TypeOfCase kTypeOfCase = MakeTypeOfCase<T>();

struct OpcodeCase {
  const char* kernel;
  const char* ptx;
  const TypeOfCase* result;
  std::vector<const TypeOfCase*> inputs;
  void (*meaning)(const u64* inputs, void* result);
};

template <class T>
typename T::type Input(u64 bits) {
  return static_cast<typename T::type>(FromBits<typename decltype(T::Edges())::value_type>(bits));
}
template <class T>
void Result(void* result, typename T::type value) {
  *static_cast<typename T::stored*>(result) = static_cast<typename T::stored>(value);
}

// Each case becomes a test of its own.
bool RegisterCases(const char* suite, std::span<const OpcodeCase> cases);

}  // namespace host_cuda::testing
