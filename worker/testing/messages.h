// Messages of a router, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/worker.pb.h"

namespace sluice::worker {

inline v1::RouterMessage Hello(uint64_t worker, uint64_t router = 7) {
  v1::RouterMessage message;
  message.mutable_hello()->set_worker_incarnation(worker);
  message.mutable_hello()->set_router_incarnation(router);
  message.mutable_hello()->set_protocol_version(1);
  return message;
}

inline v1::RequestKey Key(const std::string& id, int attempt = 1) {
  v1::RequestKey key;
  key.set_request_id(id);
  key.set_attempt(attempt);
  return key;
}

inline v1::SequenceSpec Spec(int prompt_tokens, int max_tokens) {
  v1::SequenceSpec spec;
  for (int i = 0; i < prompt_tokens; ++i) spec.add_tokens(3 + i % 50);
  spec.set_num_prompt_tokens(prompt_tokens);
  spec.mutable_sampling()->set_max_tokens(max_tokens);
  return spec;
}

inline v1::RouterMessage Reserve(const std::string& id, int prompt_tokens, int max_tokens, int64_t remaining_ms = 0) {
  v1::RouterMessage message;
  v1::Reserve* reserve = message.mutable_reserve();
  *reserve->mutable_key() = Key(id);
  *reserve->mutable_sequence() = Spec(prompt_tokens, max_tokens);
  reserve->set_compute_prompt(true);
  reserve->set_remaining_ms(remaining_ms);
  return message;
}

inline v1::RouterMessage Cancel(const std::string& id) {
  v1::RouterMessage message;
  *message.mutable_cancel()->mutable_key() = Key(id);
  return message;
}

inline v1::RouterMessage Release(const std::string& id, uint64_t lease) {
  v1::RouterMessage message;
  *message.mutable_release()->mutable_key() = Key(id);
  message.mutable_release()->set_lease_id(lease);
  return message;
}

inline v1::RouterMessage Renew(const std::vector<uint64_t>& leases) {
  v1::RouterMessage message;
  message.mutable_renew()->mutable_lease_ids()->Add(leases.begin(), leases.end());
  return message;
}

inline v1::RouterMessage Prefill(const std::string& id) {
  v1::RouterMessage message;
  *message.mutable_prefill()->mutable_key() = Key(id);
  return message;
}

inline v1::RouterMessage Drain() {
  v1::RouterMessage message;
  message.mutable_drain();
  return message;
}

}  // namespace sluice::worker
