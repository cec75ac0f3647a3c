// The bytes that both ends of a TCP channel agree on.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::kvtransfer {

inline constexpr int kTcpConnections = 2;
inline constexpr size_t kTcpTokenBytes = 32;
inline constexpr size_t kTcpHelloBytes = kTcpTokenBytes + 1;  // and the connection's number
inline constexpr char kTcpWelcome = 1;                        // the receiver's answer to a good hello
inline constexpr size_t kTcpHeaderBytes = 16;                 // of a frame: sequence, bytes

// Little-endian.
inline void WriteFrameHeader(uint64_t sequence, uint64_t bytes, std::byte* to) {
  const uint64_t words[2] = {htole64(sequence), htole64(bytes)};
  std::memcpy(to, words, sizeof words);
}

inline void ReadFrameHeader(const std::byte* from, uint64_t* sequence, uint64_t* bytes) {
  uint64_t words[2];
  std::memcpy(words, from, sizeof words);
  *sequence = le64toh(words[0]);
  *bytes = le64toh(words[1]);
}

}  // namespace sluice::kvtransfer
