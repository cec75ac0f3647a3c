// Peers that say anything at all, made of any bytes: whole messages that are parsed from them, and messages of the right
// shape with small, meaningful or absurd fields. Aborts where a machine or the frame parser breaks its promises:
//   - a lease or transfer ends at most once, and exactly once when its pair is over;
//   - a lease ends OK only when every byte that its Commit counts was granted, came, and had its checksum;
//   - nothing is scattered that was not announced within the lease's blocks, nor after the lease's end;
//   - frames write only where they were granted, and a granted frame is whole at most once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::kvtransfer {

// What was reached, so that a test can tell that a run was worth something.
struct HostileCounts {
  int committed = 0;   // leases that ended OK
  int failed = 0;      // ended with an error
  int aborted = 0;     // pairs
  int scattered = 0;   // pieces
  int gathered = 0;
  int frames = 0;      // whole ones
  int refused = 0;     // connections or frames
};

void HostileSender(std::span<const uint8_t> bytes, HostileCounts& counts);    // against a Receiver
void HostileReceiver(std::span<const uint8_t> bytes, HostileCounts& counts);  // against a Sender
void HostileFrames(std::span<const uint8_t> bytes, HostileCounts& counts);    // against TcpFrames

}  // namespace sluice::kvtransfer
