// What the core shows of itself.
#include <algorithm>
#include <utility>
#include <vector>

#include "router/core.h"

namespace sluice::router {

pb::ClusterState RouterCore::State() const {
  pb::ClusterState state;
  state.set_model(options_.registry.model);
  state.set_router_version(options_.version);
  state.set_router_incarnation(options_.router_incarnation);
  state.set_queued(queue_.size());
  state.set_running(int(std::count_if(requests_.begin(), requests_.end(),
                                      [](const auto& r) { return r.second->state() != RequestState::kQueued; })));
  state.set_context_length(options_.context_length);
  for (const auto& [incarnation, worker] : registry_.workers()) {
    pb::WorkerStatus& status = *state.add_workers();
    status.set_role(worker.info.role());
    status.set_pid(worker.info.pid());
    status.set_port(worker.info.work().port());
    status.set_host(worker.info.work().host());
    status.set_state(worker.state);
    status.set_incarnation(incarnation);
    status.set_model(worker.info.model());
    status.set_numerics(worker.info.fingerprint().numerics());
    status.set_blocks_total(worker.info.blocks_total());
    const bool reported = worker.report.sequence() != 0;
    status.set_blocks_free(reported ? worker.report.blocks_free() : worker.info.blocks_total());
    status.set_running(worker.report.running());
    status.set_waiting(worker.report.waiting());
    *status.mutable_engine() = worker.report.engine();
    if (const auto load = loads_.find(incarnation); load != loads_.end()) {
      status.set_requests(load->second.attempts());
      status.set_prompt_tokens_per_s(load->second.prompt_tokens_per_s());
    }
    status.set_step_ms(worker.report.step_ms());
    for (const pb::KvFlow& flow : worker.report.kv_flows()) {
      pb::KvFlow& shown = *status.add_kv_flows();
      shown = flow;
      const auto peer = registry_.workers().find(flow.peer_incarnation());
      if (peer != registry_.workers().end()) shown.set_peer(peer->second.name());
    }
  }
  return state;
}

pb::RequestList RouterCore::Requests(int limit, absl::Time now) const {
  pb::RequestList list;
  std::vector<const Request*> running;
  for (const auto& [call, request] : requests_) running.push_back(request.get());
  std::sort(running.begin(), running.end(), [](const Request* a, const Request* b) {
    return std::pair(a->received(), a->call()) > std::pair(b->received(), b->call());
  });
  if (running.size() > size_t(std::max(0, limit))) running.resize(size_t(std::max(0, limit)));
  for (const Request* request : running) *list.add_requests() = request->Summary(now, nullptr);
  log_.AppendTo(list, limit, now);
  return list;
}

RouterCore::Sizes RouterCore::sizes() const {
  Sizes sizes{.requests = int(requests_.size()),
              .wire_ids = int(wire_ids_.size()),
              .queued = queue_.size(),
              .deadlines = int(deadlines_.size()),
              .closing = int(closing_.size()),
              .parked = int(parked_.size()),
              .promises = int(prefixes_.promises())};
  for (const auto& [incarnation, load] : loads_) sizes.attempts += load.attempts();
  return sizes;
}

}  // namespace sluice::router
