// What the decode role needs of the transfer: kvtransfer::DecodeEndpoint in a server, a script in tests.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace sluice::decode_worker {

class KvInbox {
 public:
  virtual ~KvInbox() = default;

  // KV for the blocks of this lease from `first_block` on will come from that prefill worker. Exactly one end follows
  // (DecodeRole::OnKvEnd), never from inside this call, and until then these blocks may be written.
  virtual void Expect(uint64_t lease_id, uint64_t prefill_incarnation, v1::RequestKey key,
                      std::vector<int32_t> blocks, int first_block) = 0;

  // The lease is over; its end follows as soon as nothing writes to it.
  virtual void Forget(uint64_t lease_id, absl::Status why) = 0;
};

}  // namespace sluice::decode_worker
