// One try to be announced at one router: a `Registry.Announce` call from its start to its end.
//
// The call is kept open by a hold until nothing will be written any more, so no write can meet a dead call. gRPC is
// never called with the mutex held. Whoever made the stream keeps it until state().ended: the last reference to what is
// gRPC's must not go on one of its threads.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.grpc.pb.h"

namespace sluice::worker {

class AnnounceStream final : public grpc::ClientBidiReactor<v1::Announcement, v1::AnnounceReply> {
 public:
  struct State {
    bool announced = false;  // the router has answered
    bool drain = false;      // it asked for that, once is enough
    bool ended = false;
    v1::AnnounceReply last_reply;  // where announced
    uint64_t peer_lists = 0;       // that came so far; `peers` is the last of them
    std::vector<v1::DecodePeer> peers;
    grpc::Status status;  // where ended
  };

  // Whether a reply is of a router that belongs to this cluster.
  using Belongs = std::function<bool(const v1::AnnounceReply&)>;

  // `on_change` is called on gRPC's threads after every change of the state. A reply that does not belong ends the call
  // with UNAUTHENTICATED and changes nothing else.
  AnnounceStream(std::function<void()> on_change, Belongs belongs)
      : on_change_(std::move(on_change)), belongs_(std::move(belongs)) {}

  // Starts the call.
  void Begin(v1::Registry::Stub& stub, v1::Announcement first);

  // A message that did not get out yet is replaced: only the newest report matters.
  void Send(v1::Announcement announcement);

  // The last message; the call ends once it is out.
  void Leave(v1::Announcement last);

  void Abort() { context_.TryCancel(); }

  State state() const;

  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Continue();

  std::function<void()> on_change_;
  const Belongs belongs_;
  grpc::ClientContext context_;
  v1::Announcement outgoing_;   // of the write under way
  v1::AnnounceReply incoming_;  // of the read under way

  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Announcement> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;   // half-close after `next_`
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;    // nothing is written any more
  bool stranger_ ABSL_GUARDED_BY(mutex_) = false;  // a reply did not belong
  bool released_ ABSL_GUARDED_BY(mutex_) = false;  // the hold is gone
};

}  // namespace sluice::worker
