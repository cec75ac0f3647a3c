// The network between machines: connections with two ends, each direction of which keeps its order; everything else
// comes as it likes. Delays differ from connection to connection and change, so messages of different connections
// overtake each other.
//
// What can go wrong: a connection breaks (its ends hear of it at different moments, and what was under way is lost); a
// machine's process dies (the others hear a reset, or nothing at all until their patience ends); two machines are
// partitioned (what is sent waits, and a connection whose patience is shorter breaks at both ends); a link is slow; a
// machine stands still (nothing reaches it until it goes on).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "simulation/rng.h"
#include "simulation/schedule.h"

namespace sluice::simulation {

struct NetworkOptions {
  absl::Duration least_delay = absl::Microseconds(50);
  absl::Duration most_delay = absl::Milliseconds(2);  // of a connection's base; single messages may take longer
  int spike_one_in = 128;                             // messages that take many times as long; 0: none
};

class Network {
 public:
  using Node = int;
  using Closed = absl::AnyInvocable<void(const absl::Status&)>;
  enum End { kDialer = 0, kListener = 1 };

  Network(const NetworkOptions& options, Schedule& schedule, Rng& rng)
      : options_(options), schedule_(schedule), rng_(rng) {}

  // `patience`: how long an end waits for a silent peer. An end hears of the connection's end once, unless it closed it
  // itself or its process died.
  uint64_t Connect(Node dialer, Node listener, absl::Duration patience, Closed dialer_closed, Closed listener_closed);
  // `arrive` happens at the other end, if the connection is still open there.
  void Send(uint64_t connection, End from, Schedule::What arrive);
  // The other end hears of it after all that was sent before.
  void Close(uint64_t connection, End from, absl::Status why);

  // ---- faults ----
  void Cut(uint64_t connection);
  void Crash(Node node, bool silent);  // of the process: all its connections
  void Partition(Node a, Node b, absl::Duration time);
  void Slow(Node a, Node b, double factor, absl::Duration time);
  void Freeze(Node node, absl::Duration time);
  void Thaw(Node node) { frozen_.erase(node); }
  void Heal();  // no partition, nobody slow

  absl::Time frozen_until(Node node) const;
  std::vector<uint64_t> ConnectionsOf(Node node) const;  // ascending
  size_t open() const { return connections_.size(); }

 private:
  struct Direction {
    std::deque<Schedule::What> under_way;
    absl::Time last_arrival = absl::InfinitePast();
    absl::Duration base;
  };
  struct Connection {
    Node node[2];
    absl::Duration patience;
    Closed closed[2];
    bool open[2] = {true, true};
    bool broken = false;  // nothing goes through any more, though its ends may not know yet
    Direction to[2];      // by the end that it leads to
  };
  struct Slowness {
    double factor = 1;
    absl::Time until;
  };
  using Pair = std::pair<Node, Node>;

  static Pair PairOf(Node a, Node b) { return a < b ? Pair{a, b} : Pair{b, a}; }
  Connection* Find(uint64_t connection);
  absl::Duration Delay(const Connection& c, Direction& direction);
  absl::Duration NewBase() { return rng_.Between(options_.least_delay, options_.most_delay); }
  absl::Time BlockedUntil(Node a, Node b) const;
  absl::Time Reachable(const Connection& c, End to) const;
  void Arrive(uint64_t connection, End to);
  void EndAt(uint64_t connection, End end, const absl::Status& why);
  void BreakAfterPatience(uint64_t connection, const Connection& c);

  const NetworkOptions options_;
  Schedule& schedule_;
  Rng& rng_;
  uint64_t next_ = 1;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<Node, std::set<uint64_t>> of_node_;
  std::map<Pair, absl::Time> partitions_;
  std::map<Pair, Slowness> slow_;
  std::map<Node, absl::Time> frozen_;
};

}  // namespace sluice::simulation
