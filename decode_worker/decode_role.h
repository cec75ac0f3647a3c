// The decode role: leases that await the KV of a prefill worker, then decoding from the second token on; and whole
// answers, where a Reserve asks for the prompt too. Pure: no threads, gRPC or clock.
//
//   Reserve --> awaiting --KV end OK--> decoding --> Finished
//                  |  \--KV end, error--> Failed
//                  `--stopped--> leaving --KV end--> its blocks are free
//   Reserve(compute_prompt) --> decoding
//
// Promises: nothing is decoded before the KV end is OK and says what was due (every block, the whole prompt, one first
// token); the blocks of a lease are freed only after its KV end.
//
// A lease is promised the blocks of the prompt and of `headroom_tokens` (none given: of the whole answer). Who is
// preempted for lack of more is computed again here, the prompt too.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "decode_worker/kv_inbox.h"
#include "kernels/kv_layout.h"
#include "kvtransfer/receiver.h"
#include "worker/engine_port.h"
#include "worker/request_table.h"
#include "worker/role.h"

namespace sluice::decode_worker {

class DecodeRole final : public worker::Role {
 public:
  // All outlive the role.
  DecodeRole(const kernels::KvLayout& layout, worker::EnginePort& engine, worker::RequestTable& requests,
             KvInbox& inbox);

  std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                     v1::LeaseGranted& granted) override;
  std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Prefill& prefill, engine::EngineRequest request) override;
  void OnStep(const std::vector<engine::TokenOutput>& outputs, const std::vector<engine::SequenceProgress>& progress,
              absl::Time now) override;
  bool Stop(uint64_t id, const v1::ErrorInfo& why) override;

  // The end that KvInbox::Expect promised.
  void OnKvEnd(const kvtransfer::Receiver::End& end, absl::Time at);

 private:
  enum class State { kAwaiting, kDecoding, kLeaving };
  struct Lease {
    State state = State::kDecoding;
    int prompt_tokens = 0;  // to come with the KV
    int cached_tokens = 0;  // of them: here already, in the prefix cache
    int saved_tokens = -1;  // of them: not computed by the prefill worker; -1: computed here
    bool says_decoding = false;
  };

  absl::Status CheckHandedOver(const Lease& lease, const kvtransfer::Receiver::End& end) const;
  void StartDecoding(uint64_t id, Lease& lease, const kvtransfer::Receiver::End& end, absl::Time at);
  void Drop(uint64_t id);  // frees the blocks

  const kernels::KvLayout layout_;
  worker::EnginePort& engine_;
  worker::RequestTable& requests_;
  KvInbox& inbox_;
  std::unordered_map<uint64_t, Lease> leases_;
};

}  // namespace sluice::decode_worker
