// The decode role with its KV endpoint, as a worker's server composes it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "decode_worker/decode_role.h"
#include "decode_worker/kv_inbox.h"
#include "kvtransfer/decode_endpoint.h"
#include "worker/role_factory.h"

namespace sluice::decode_worker {

class DecodeInstance final : public worker::RoleInstance, private KvInbox {
 public:
  // `timing` is for tests that cannot wait as long as a server does; its other fields are filled in here.
  DecodeInstance(const worker::RoleEnvironment& environment, kvtransfer::DecodeEndpoint::Options timing);

  worker::Role& role() override { return role_; }
  std::vector<grpc::Service*> services() override { return {&endpoint_.service()}; }

 private:
  void Expect(uint64_t lease_id, uint64_t prefill_incarnation, v1::RequestKey key,
              std::vector<int32_t> blocks, int first_block) override;
  void Forget(uint64_t lease_id, absl::Status why) override;

  DecodeRole role_;
  kvtransfer::DecodeEndpoint endpoint_;  // dies first: its thread posts to the role
};

absl::StatusOr<std::unique_ptr<worker::RoleInstance>> MakeDecodeInstance(const worker::RoleEnvironment& environment);

}  // namespace sluice::decode_worker
