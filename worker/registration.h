// Keeps a worker announced at its routers: one `Registry.Announce` stream each, heartbeats at the pace that router asks
// for, a new try after a loss with growing, jittered pauses, `leaving` at the end.
//
// One thread keeps the time for all routers and owns their state; gRPC's callbacks only wake it. A router that is away
// never disturbs the others.
//
// Routers of the command line are kept for ever. Those that a registry names come and go with SetRouters; who is named
// no longer is given up once its stream is down, never before: a router that answers is alive, whatever a registry
// says.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "proto/cluster_key.h"
#include "proto/worker.pb.h"
#include "worker/report_board.h"

namespace sluice::worker {

struct RegistrationOptions {
  std::vector<std::string> routers;  // HOST:PORT, kept for ever
  v1::WorkerInfo info;
  ClusterKey key;  // a router that does not have it is not listened to
  absl::Duration first_retry = absl::Milliseconds(100);
  absl::Duration longest_retry = absl::Seconds(1);
  // Both are called on the registration's thread.
  std::function<void()> on_drain;  // a router asked for it
  // The decode workers that the routers know, all routers together: HOST:PORT by incarnation. A router that is away is
  // taken at its last word.
  std::function<void(std::map<uint64_t, std::string>)> on_peers;
};

class Registration {
 public:
  // `board` must outlive this.
  Registration(RegistrationOptions options, ReportBoard& board);
  ~Registration();

  void Start();

  // The routers that a registry names now, beside the fixed ones. Any thread, also before Start.
  void SetRouters(std::vector<std::string> routers);

  // The board has news that does not wait for the next heartbeat. Any thread.
  void ReportSoon();

  // Tells every router that the worker leaves; the thread ends when that is out, or after `timeout`.
  void BeginLeave(absl::Duration timeout);

  // BeginLeave and wait.
  void Stop(absl::Duration timeout);

 private:
  class Waker;
  struct Link;

  void Run();
  absl::Time Advance(Link& link, absl::Time now);  // does what is due; returns when something is due again
  void StartTry(Link& link);
  void RetireTry(Link& link, absl::Time now);
  void UpdateLinks(const std::vector<std::string>& named);
  bool IsOver(Link& link);  // nobody names its router any more, and it does not answer
  void LeaveAll();
  void CollectPeers();
  v1::Announcement Heartbeat() const;

  const RegistrationOptions options_;
  ReportBoard& board_;
  std::list<Link> links_;                  // of the thread
  std::map<uint64_t, std::string> peers_;  // as last told to on_peers
  const std::shared_ptr<Waker> waker_;     // shared with callbacks, which may outlive this object
  std::thread thread_;
};

}  // namespace sluice::worker
