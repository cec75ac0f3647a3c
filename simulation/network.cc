#include "simulation/network.h"

#include <algorithm>

namespace sluice::simulation {
namespace {

constexpr absl::Duration kLongestDelay = absl::Milliseconds(400);  // where nothing is wrong

}  // namespace

uint64_t Network::Connect(Node dialer, Node listener, absl::Duration patience, Closed dialer_closed,
                          Closed listener_closed) {
  const uint64_t id = next_++;
  auto c = std::make_unique<Connection>();
  c->node[kDialer] = dialer;
  c->node[kListener] = listener;
  c->patience = patience;
  c->closed[kDialer] = std::move(dialer_closed);
  c->closed[kListener] = std::move(listener_closed);
  c->to[kDialer].base = NewBase();
  c->to[kListener].base = NewBase();
  of_node_[dialer].insert(id);
  of_node_[listener].insert(id);
  if (BlockedUntil(dialer, listener) - schedule_.now() > patience) BreakAfterPatience(id, *c);
  connections_[id] = std::move(c);
  return id;
}

Network::Connection* Network::Find(uint64_t connection) {
  const auto it = connections_.find(connection);
  return it == connections_.end() ? nullptr : it->second.get();
}

absl::Duration Network::Delay(const Connection& c, Direction& direction) {
  if (rng_.OneIn(64)) direction.base = NewBase();
  absl::Duration delay = direction.base * (0.5 + 0.5 * rng_.Exponential());
  if (rng_.OneIn(options_.spike_one_in)) delay *= double(rng_.Between(5, 50));
  delay = std::min(delay, kLongestDelay);
  if (!slow_.empty()) {
    const auto slow = slow_.find(PairOf(c.node[0], c.node[1]));
    if (slow != slow_.end() && slow->second.until > schedule_.now()) delay *= slow->second.factor;
  }
  return delay;
}

void Network::Send(uint64_t connection, End from, Schedule::What arrive) {
  Connection* c = Find(connection);
  const End to = from == kDialer ? kListener : kDialer;
  if (c == nullptr || c->broken || !c->open[from] || !c->open[to]) return;
  Direction& direction = c->to[to];
  direction.under_way.push_back(std::move(arrive));
  direction.last_arrival = std::max(direction.last_arrival, schedule_.now() + Delay(*c, direction));
  schedule_.At(direction.last_arrival, [this, connection, to] { Arrive(connection, to); });
}

absl::Time Network::BlockedUntil(Node a, Node b) const {
  if (partitions_.empty()) return absl::InfinitePast();
  const auto it = partitions_.find(PairOf(a, b));
  return it == partitions_.end() ? absl::InfinitePast() : it->second;
}

absl::Time Network::frozen_until(Node node) const {
  if (frozen_.empty()) return absl::InfinitePast();
  const auto it = frozen_.find(node);
  return it == frozen_.end() ? absl::InfinitePast() : it->second;
}

absl::Time Network::Reachable(const Connection& c, End to) const {
  return std::max(BlockedUntil(c.node[0], c.node[1]), frozen_until(c.node[to]));
}

// Whatever was sent first comes first: one arrival is due for each message, not a certain one's.
void Network::Arrive(uint64_t connection, End to) {
  Connection* c = Find(connection);
  if (c == nullptr || c->broken || !c->open[to]) return;
  if (const absl::Time at = Reachable(*c, to); at > schedule_.now()) {
    schedule_.At(at, [this, connection, to] { Arrive(connection, to); });
    return;
  }
  Direction& direction = c->to[to];
  if (direction.under_way.empty()) return;
  Schedule::What what = std::move(direction.under_way.front());
  direction.under_way.pop_front();
  what();
}

void Network::Close(uint64_t connection, End from, absl::Status why) {
  Connection* c = Find(connection);
  if (c == nullptr || !c->open[from]) return;
  const End to = from == kDialer ? kListener : kDialer;
  Send(connection, from, [this, connection, to, why = std::move(why)] { EndAt(connection, to, why); });
  c->open[from] = false;
  if (!c->open[to]) EndAt(connection, from, absl::OkStatus());
}

// Forgets the connection when the second end is closed.
void Network::EndAt(uint64_t connection, End end, const absl::Status& why) {
  Connection* c = Find(connection);
  if (c == nullptr) return;
  Closed closed;
  if (c->open[end]) closed = std::move(c->closed[end]);
  c->open[end] = false;
  if (!c->open[end == kDialer ? kListener : kDialer]) {
    for (Node node : c->node) of_node_[node].erase(connection);
    connections_.erase(connection);
  }
  if (closed) closed(why);
}

void Network::Cut(uint64_t connection) {
  Connection* c = Find(connection);
  if (c == nullptr) return;
  c->broken = true;
  for (End end : {kDialer, kListener}) {
    const absl::Time at = std::max(schedule_.now() + rng_.Between(absl::ZeroDuration(), absl::Milliseconds(300)),
                                   frozen_until(c->node[end]));
    schedule_.At(at, [this, connection, end] { EndAt(connection, end, absl::UnavailableError("connection reset")); });
  }
}

void Network::Crash(Node node, bool silent) {
  for (uint64_t connection : ConnectionsOf(node)) {
    Connection* c = Find(connection);
    for (End end : {kDialer, kListener}) {
      if (c == nullptr || c->node[end] != node || !c->open[end]) continue;
      c->closed[end] = nullptr;
      if (!silent) {
        Close(connection, end, absl::UnavailableError("connection reset by peer"));
      } else {
        c->open[end] = false;
        const End other = end == kDialer ? kListener : kDialer;
        if (!c->open[other]) {
          EndAt(connection, end, absl::OkStatus());
        } else {
          schedule_.After(c->patience * (0.7 + 0.6 * rng_.Uniform()), [this, connection, other] {
            EndAt(connection, other, absl::UnavailableError("the peer is silent"));
          });
        }
      }
      c = Find(connection);
    }
  }
}

void Network::BreakAfterPatience(uint64_t connection, const Connection& c) {
  for (End end : {kDialer, kListener}) {
    schedule_.After(c.patience * (0.7 + 0.6 * rng_.Uniform()),
                    [this, connection, end] { EndAt(connection, end, absl::UnavailableError("the peer is silent")); });
  }
}

void Network::Partition(Node a, Node b, absl::Duration time) {
  absl::Time& until = partitions_[PairOf(a, b)];
  until = std::max(until, schedule_.now() + time);
  for (uint64_t connection : ConnectionsOf(a)) {
    const Connection* c = Find(connection);
    if (PairOf(c->node[0], c->node[1]) != PairOf(a, b)) continue;
    if (until - schedule_.now() > c->patience) BreakAfterPatience(connection, *c);
  }
}

void Network::Slow(Node a, Node b, double factor, absl::Duration time) {
  slow_[PairOf(a, b)] = {factor, schedule_.now() + time};
}

void Network::Freeze(Node node, absl::Duration time) {
  absl::Time& until = frozen_[node];
  until = std::max(until, schedule_.now() + time);
}

void Network::Heal() {
  partitions_.clear();
  slow_.clear();
}

std::vector<uint64_t> Network::ConnectionsOf(Node node) const {
  const auto it = of_node_.find(node);
  if (it == of_node_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

}  // namespace sluice::simulation
