// The prefill role with its KV endpoint, as a worker's server composes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtransfer/fault_channel.h"
#include "kvtransfer/prefill_endpoint.h"
#include "prefill_worker/kv_outbox.h"
#include "prefill_worker/prefill_role.h"
#include "worker/role_factory.h"

namespace sluice::prefill_worker {

class PrefillInstance final : public worker::RoleInstance, private KvOutbox {
 public:
  // `timing` is for tests that cannot wait as long as a server does; its other fields are filled in here.
  PrefillInstance(const worker::RoleEnvironment& environment, kvtransfer::FaultPlan faults,
                  kvtransfer::PrefillEndpoint::Options timing);

  worker::Role& role() override { return role_; }
  void SetPeers(std::map<uint64_t, std::string> address_by_incarnation) override;

  const kvtransfer::FaultState& faults() const { return *faults_; }

 private:
  void Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks) override;
  void AddBlocks(TransferId id, int begin, int end, LayerRange layers) override;
  void Commit(TransferId id, v1::Commit commit) override;
  void Cancel(TransferId id, absl::Status why) override;

  kvtransfer::PrefillEndpoint::Options Complete(kvtransfer::PrefillEndpoint::Options options);
  kvtransfer::PrefillEndpoint::Callbacks MakeCallbacks();

  const worker::RoleEnvironment environment_;
  const std::shared_ptr<kvtransfer::FaultState> faults_ = std::make_shared<kvtransfer::FaultState>();
  PrefillRole role_;
  kvtransfer::PrefillEndpoint endpoint_;  // dies first: its thread posts to the role
};

absl::StatusOr<std::unique_ptr<worker::RoleInstance>> MakePrefillInstance(const worker::RoleEnvironment& environment);

}  // namespace sluice::prefill_worker
