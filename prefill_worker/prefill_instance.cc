#include "prefill_worker/prefill_instance.h"

#include <set>
#include <utility>

#include "glog/logging.h"
#include "kvtransfer/error_info.h"
#include "worker/kv_channels.h"

namespace sluice::prefill_worker {

using kvtransfer::PrefillEndpoint;
using kvtransfer::Sender;

PrefillInstance::PrefillInstance(const worker::RoleEnvironment& environment, kvtransfer::FaultPlan faults,
                                 PrefillEndpoint::Options timing)
    : environment_(environment),
      role_(environment.kv.layout, environment.engine, environment.requests, *this),
      endpoint_((faults_->plan = std::move(faults), Complete(std::move(timing))), MakeCallbacks()) {}

PrefillEndpoint::Options PrefillInstance::Complete(PrefillEndpoint::Options options) {
  options.incarnation = environment_.info.incarnation();
  options.fingerprint = environment_.info.fingerprint();
  options.key = environment_.key;
  options.security = environment_.security;
  options.host_id = environment_.info.host_id();
  options.kv = environment_.kv;
  const kvtransfer::FaultPlan& plan = faults_->plan;
  if (!plan.corrupt.empty() || !plan.lose.empty() || !plan.stall.empty() || !plan.fail.empty() ||
      !plan.delay.empty() || !plan.duplicate.empty()) {
    LOG(WARNING) << "faults will be injected into the KV transfer";
    options.wrap_channel = [faults = faults_](std::unique_ptr<kvtransfer::SendChannel> channel) {
      return kvtransfer::WithFaults(std::move(channel), faults);
    };
  }
  return options;
}

// On the endpoint's thread: what concerns requests goes to the engine thread, the states of pairs straight into the
// report, which must not wait for a step.
PrefillEndpoint::Callbacks PrefillInstance::MakeCallbacks() {
  PrefillEndpoint::Callbacks callbacks;
  callbacks.on_end = [this](TransferId id, const Sender::End& end) {
    environment_.loop.PostTask([this, id, end](absl::Time posted) { role_.OnTransferEnd(id, end, posted); });
  };
  callbacks.on_progress = [this](TransferId id, int64_t bytes) {
    environment_.loop.PostTask([this, id, bytes](absl::Time posted) { role_.OnAcked(id, bytes, posted); });
  };
  callbacks.on_flows = [this](std::vector<v1::KvFlow> flows) { environment_.board.SetFlows(std::move(flows)); };
  callbacks.on_pair = [this](uint64_t incarnation, PrefillEndpoint::PairState state, const absl::Status& why) {
    v1::PairStatus pair;
    pair.set_decode_incarnation(incarnation);
    pair.set_up(state == PrefillEndpoint::PairState::kUp);
    if (state == PrefillEndpoint::PairState::kRefused) {
      *pair.mutable_refused() = kvtransfer::ToErrorInfo(why, v1::INCOMPATIBLE);
    }
    environment_.board.SetPair(std::move(pair));
    environment_.report_soon();
  };
  return callbacks;
}

void PrefillInstance::SetPeers(std::map<uint64_t, std::string> address_by_incarnation) {
  std::set<uint64_t> incarnations;
  PrefillEndpoint::Peers peers;
  for (auto& [incarnation, address] : address_by_incarnation) {
    incarnations.insert(incarnation);
    // All ranks of an instance on the CPU share one pool, which rank 0 takes and sends from.
    peers[incarnation] = {std::move(address)};
  }
  environment_.board.SetPeers(incarnations);
  endpoint_.SetPeers(std::move(peers));
  environment_.report_soon();
}

void PrefillInstance::Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks) {
  endpoint_.Open(id, std::move(key), std::move(blocks));
}

void PrefillInstance::AddBlocks(TransferId id, int begin, int end, LayerRange layers) {
  endpoint_.AddBlocks(id, begin, end, layers);
}

void PrefillInstance::Commit(TransferId id, v1::Commit commit) {
  endpoint_.Commit(id, std::move(commit));
}

void PrefillInstance::Cancel(TransferId id, absl::Status why) {
  endpoint_.Cancel(id, std::move(why));
}

absl::StatusOr<std::unique_ptr<worker::RoleInstance>> MakePrefillInstance(const worker::RoleEnvironment& environment) {
  absl::StatusOr<kvtransfer::FaultPlan> faults = kvtransfer::ParseFaultPlan(environment.options.fault);
  if (!faults.ok()) return faults.status();
  auto channels = worker::KvChannelsOf(environment.options, environment.kv);
  if (!channels.ok()) return channels.status();
  PrefillEndpoint::Options options;
  options.channels = *std::move(channels);
  return std::make_unique<PrefillInstance>(environment, *std::move(faults), std::move(options));
}

}  // namespace sluice::prefill_worker
