// The router's ends of the Work streams: opens them, moves messages, reports how they end. Decides nothing.
//
// Promises: each Connect is answered by LinkUp (when the worker has said hello) or not, and by exactly one LinkDown;
// one write is in flight per stream; a peer that falls silent (stopped, unplugged) is noticed by keepalive pings. What
// gRPC gave a stream (its context, its channel) is destroyed by a thread that calls this class, never by gRPC's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/cluster_key.h"
#include "proto/transport_security.h"
#include "router/events.h"

namespace sluice::router {

struct LinkOptions {
  uint64_t router_incarnation = 0;
  ClusterKey key;  // a worker that does not have it gets no work
  TransportSecurity security;
  absl::Duration keepalive_time = absl::Seconds(3);     // without traffic, until a ping goes out
  absl::Duration keepalive_timeout = absl::Seconds(4);  // until the ping counts as lost
};

class WorkerLink;

class WorkerLinks {
 public:
  using Post = std::function<void(Event)>;

  WorkerLinks(const LinkOptions& options, Post post) : options_(options), post_(std::move(post)) {}
  ~WorkerLinks();  // closes and waits

  void Connect(const ConnectWorker& action);
  void Disconnect(uint64_t link);
  void Send(SendToWorker action);
  void CloseAll();  // and waits until every stream has ended

 private:
  friend class WorkerLink;
  void Ended(uint64_t link, const absl::Status& why);
  std::shared_ptr<WorkerLink> Find(uint64_t link);
  void Bury();

  const LinkOptions options_;
  const Post post_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<WorkerLink>> links_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<WorkerLink>> dead_ ABSL_GUARDED_BY(mutex_);  // ended, to be destroyed by the next caller
};

}  // namespace sluice::router
