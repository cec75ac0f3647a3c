#include "simulation/kv_links.h"

#include <algorithm>

namespace sluice::simulation {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);

}  // namespace

void KvLinks::SetPeers(uint64_t prefill, const std::vector<std::pair<uint64_t, Network::Node>>& decodes) {
  reported_.erase(prefill);
  std::vector<Key> dropped;
  for (auto it = pairs_.lower_bound({prefill, 0}); it != pairs_.end() && it->first.first == prefill; ++it) {
    const bool stays = std::any_of(decodes.begin(), decodes.end(),
                                   [&](const auto& decode) { return decode.first == it->first.second; });
    if (!stays) dropped.push_back(it->first);
  }
  for (const Key& key : dropped) {
    const Pair pair = pairs_.at(key);
    if (pair.at_decode != 0) orphans_[pair.at_decode] = key;
    pairs_.erase(key);
    if (pair.at_prefill == 0) continue;
    network_.Close(pair.at_prefill, Network::kDialer, absl::UnavailableError("no peer any more"));
    if (ModelWorker* p = find_(prefill).worker; p != nullptr) p->OnPairDown(key.second);
  }
  for (const auto& [decode, node] : decodes) {
    const auto [it, added] = pairs_.try_emplace({prefill, decode});
    it->second.decode_node = node;
    if (added) Dial(it->first);
  }
}

void KvLinks::Dial(Key key) {
  const Process prefill = find_(key.first);
  const auto it = pairs_.find(key);
  if (prefill.worker == nullptr || it == pairs_.end()) return;
  // The callbacks need the id that Connect returns.
  auto id = std::make_shared<uint64_t>(0);
  const uint64_t connection = network_.Connect(
      prefill.node, it->second.decode_node, kPatience, [this, key, id](const auto&) { LostAtPrefill(key, *id); },
      [this, key, id](const auto&) { LostAtDecode(key, *id); });
  *id = connection;
  it->second.at_prefill = connection;
  network_.Send(connection, Network::kDialer, [this, key, connection] { OnHello(key, connection); });
}

// At the decode worker.
void KvLinks::OnHello(Key key, uint64_t connection) {
  const Process decode = find_(key.second);
  const auto it = pairs_.find(key);
  if (decode.worker == nullptr || it == pairs_.end()) {
    return network_.Close(connection, Network::kListener, absl::UnavailableError("connection refused"));
  }
  if (connection < it->second.at_decode) {  // a newer epoch was faster
    return network_.Close(connection, Network::kListener, absl::AbortedError("stale"));
  }
  const ModelWorker* prefill = find_(key.first).worker;
  const bool fits = prefill == nullptr || prefill->model().kind == decode.worker->model().kind;
  if (fits && it->second.at_decode != 0) LostAtDecode(key, it->second.at_decode);  // a newer epoch
  const auto again = pairs_.find(key);
  if (again == pairs_.end()) return;
  if (fits) again->second.at_decode = connection;
  network_.Send(connection, Network::kListener, [this, key, connection, fits] {
    const auto pair = pairs_.find(key);
    if (pair == pairs_.end() || pair->second.at_prefill != connection) return;
    reported_.erase(key.first);
    pair->second.up = fits;
    pair->second.refused = !fits;
    pair->second.backoff = absl::Milliseconds(50);
    made_ += fits;
    if (ModelWorker* p = find_(key.first).worker; p != nullptr) changed_(*p);
  });
}

void KvLinks::LostAtPrefill(Key key, uint64_t connection) {
  const auto it = pairs_.find(key);
  if (it == pairs_.end() || it->second.at_prefill != connection) return;
  Pair& pair = it->second;
  pair.at_prefill = 0;
  reported_.erase(key.first);
  const bool was_up = std::exchange(pair.up, false);
  const absl::Duration pause = pair.backoff * (0.5 + 0.5 * rng_.Uniform());
  pair.backoff = std::min(2 * pair.backoff, kLongestBackoff);
  schedule_.After(pause, [this, key] {
    const auto again = pairs_.find(key);
    if (again != pairs_.end() && again->second.at_prefill == 0 && !again->second.refused) Dial(key);
  });
  ModelWorker* prefill = find_(key.first).worker;
  if (prefill == nullptr || !was_up) return;
  ++lost_;
  prefill->OnPairDown(key.second);
  changed_(*prefill);
}

void KvLinks::LostAtDecode(Key key, uint64_t connection) {
  const auto it = pairs_.find(key);
  if (it != pairs_.end() && it->second.at_decode == connection) {
    it->second.at_decode = 0;
  } else if (orphans_.erase(connection) == 0) {
    return;
  }
  if (ModelWorker* decode = find_(key.second).worker; decode != nullptr) decode->OnPairDown(key.first);
}

void KvLinks::Send(const ModelWorker& from, uint64_t to, KvMessage message) {
  const bool is_prefill = from.role() == pb::ROLE_PREFILL;
  const uint64_t self = from.incarnation();
  const auto it = pairs_.find(is_prefill ? Key{self, to} : Key{to, self});
  if (it == pairs_.end()) return;
  const uint64_t connection = is_prefill ? it->second.at_prefill : it->second.at_decode;
  network_.Send(connection, is_prefill ? Network::kDialer : Network::kListener,
                [this, self, to, message = std::move(message)] {
                  if (ModelWorker* worker = find_(to).worker; worker != nullptr) worker->OnKv(self, message);
                });
}

bool KvLinks::Paired(const ModelWorker& one, uint64_t other) const {
  const bool is_prefill = one.role() == pb::ROLE_PREFILL;
  const auto it = pairs_.find(is_prefill ? Key{one.incarnation(), other} : Key{other, one.incarnation()});
  if (it == pairs_.end()) return false;
  return is_prefill ? it->second.up : it->second.at_decode != 0;
}

const google::protobuf::RepeatedPtrField<pb::PairStatus>& KvLinks::Of(uint64_t prefill) {
  const auto [kept, fresh] = reported_.try_emplace(prefill);
  if (!fresh) return kept->second;
  for (auto it = pairs_.lower_bound({prefill, 0}); it != pairs_.end() && it->first.first == prefill; ++it) {
    pb::PairStatus& status = *kept->second.Add();
    status.set_decode_incarnation(it->first.second);
    status.set_up(it->second.up);
    if (it->second.refused) status.mutable_refused()->set_reason(pb::INCOMPATIBLE);
    if (it->second.refused) status.mutable_refused()->set_message("another kind");
  }
  return kept->second;
}

// Pairs of a dead decode worker stay until the router tells the prefill worker.
void KvLinks::Forget(uint64_t incarnation) {
  reported_.erase(incarnation);
  std::vector<Key> dead;
  for (auto& [key, pair] : pairs_) {
    if (key.first == incarnation) dead.push_back(key);
    if (key.second == incarnation) pair.at_decode = 0;
  }
  for (const Key& key : dead) {
    if (const uint64_t connection = pairs_.at(key).at_decode; connection != 0) orphans_[connection] = key;
    pairs_.erase(key);
  }
}

bool KvLinks::Cut(uint64_t prefill, uint64_t decode) {
  const auto it = pairs_.find({prefill, decode});
  if (it == pairs_.end() || !it->second.up) return false;
  network_.Cut(it->second.at_prefill);
  return true;
}

}  // namespace sluice::simulation
