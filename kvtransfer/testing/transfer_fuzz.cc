// A hostile peer, as libFuzzer drives it: the first byte chooses which.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvtransfer/testing/hostile_peer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  sluice::kvtransfer::HostileCounts counts;
  switch (data[0] % 3) {
    case 0:
      sluice::kvtransfer::HostileSender(bytes, counts);
      break;
    case 1:
      sluice::kvtransfer::HostileReceiver(bytes, counts);
      break;
    default:
      sluice::kvtransfer::HostileFrames(bytes, counts);
  }
  return 0;
}
