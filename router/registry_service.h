// `Registry.Announce` over gRPC: one session per stream; moves messages between workers and the core, decides nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/cluster_key.h"
#include "proto/worker.grpc.pb.h"
#include "router/events.h"

namespace sluice::router {

class AnnounceSession;

class RegistryService final : public pb::Registry::CallbackService {
 public:
  using Post = std::function<void(Event)>;

  // A worker that does not have the key is refused.
  explicit RegistryService(Post post, ClusterKey key = {}) : post_(std::move(post)), key_(std::move(key)) {}

  grpc::ServerBidiReactor<pb::Announcement, pb::AnnounceReply>* Announce(grpc::CallbackServerContext* context) override;

  void Answer(const AnswerAnnounce& action);
  void Close(const CloseAnnounce& action);

 private:
  friend class AnnounceSession;
  void Ended(uint64_t session);
  std::shared_ptr<AnnounceSession> Find(uint64_t session);

  const Post post_;
  const ClusterKey key_;
  absl::Mutex mutex_;
  uint64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, std::shared_ptr<AnnounceSession>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::router
