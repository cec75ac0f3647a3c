#include "kvtransfer/checksum.h"

#include <cstring>

namespace sluice::kvtransfer {

uint64_t Checksum(std::span<const std::byte> bytes) {
  const size_t words = bytes.size() / 8;
  // Four independent sums: the two multiplications of a word take longer than one word's share of the loop.
  uint64_t sum[4] = {0, 0, 0, 0};
  size_t i = 0;
  for (; i + 4 <= words; i += 4) {
    uint64_t w[4];
    std::memcpy(w, bytes.data() + i * 8, sizeof(w));
    for (size_t j = 0; j < 4; ++j) sum[j] += Mix(w[j], i + j);
  }
  uint64_t total = sum[0] + sum[1] + sum[2] + sum[3] + Mix(bytes.size(), uint64_t{1} << 63);
  for (; i * 8 < bytes.size(); ++i) {
    uint64_t w = 0;
    std::memcpy(&w, bytes.data() + i * 8, bytes.size() - i * 8 < 8 ? bytes.size() - i * 8 : 8);
    total += Mix(w, i);
  }
  return total;
}

}  // namespace sluice::kvtransfer
