#include "router/registry_service.h"

#include <deque>
#include <optional>
#include <utility>

#include "glog/logging.h"
#include "router/grpc_status.h"

namespace sluice::router {

class AnnounceSession final : public grpc::ServerBidiReactor<pb::Announcement, pb::AnnounceReply> {
 public:
  AnnounceSession(RegistryService* owner, uint64_t session) : owner_(owner), session_(session) {}

  void Begin() { StartRead(&incoming_); }

  void Answer(const pb::AnnounceReply& reply) {
    absl::MutexLock lock(&mutex_);
    outbox_.push_back(reply);
    outbox_.back().set_auth(owner_->key_.Proof("announce answer", {worker_, reply.router_incarnation()}));
    Continue();
  }

  void Close(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!final_.has_value()) final_ = ToGrpc(status);
    Continue();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      owner_->post_(AnnounceLost{session_});
      return Close(absl::OkStatus());
    }
    if (!introduced_ && !incoming_.has_info()) {
      return Close(absl::InvalidArgumentError("info: is missing in the first announcement"));
    }
    if (!introduced_ && !owner_->key_.Accepts(incoming_.auth(), "announce", {incoming_.info().incarnation()})) {
      LOG_EVERY_T(WARNING, 60) << "refused a worker that does not have this cluster's key";
      return Close(
          absl::UnauthenticatedError("the worker does not have this cluster's key; give all the same --cluster-key"));
    }
    if (!introduced_) {
      absl::MutexLock lock(&mutex_);
      worker_ = incoming_.info().incarnation();
    }
    if (!std::exchange(introduced_, true)) owner_->post_(WorkerAnnounced{session_, incoming_.info()});
    if (incoming_.has_report()) owner_->post_(WorkerHeartbeat{session_, incoming_.report()});
    if (incoming_.leaving()) owner_->post_(WorkerLeaving{session_});
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    outbox_.pop_front();
    if (!ok) outbox_.clear();
    Continue();
  }

  void OnCancel() override { Close(absl::CancelledError("the worker is gone")); }

  void OnDone() override { owner_->Ended(session_); }  // destroys this

 private:
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!outbox_.empty()) {
      writing_ = true;
      StartWrite(&outbox_.front());
    } else if (final_.has_value()) {
      finished_ = true;
      Finish(*final_);
    }
  }

  RegistryService* const owner_;
  const uint64_t session_;
  pb::Announcement incoming_;
  bool introduced_ = false;  // only in reading callbacks, which never overlap

  absl::Mutex mutex_;
  uint64_t worker_ ABSL_GUARDED_BY(mutex_) = 0;                   // its incarnation
  std::deque<pb::AnnounceReply> outbox_ ABSL_GUARDED_BY(mutex_);  // the front is in flight while `writing_`
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> final_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerBidiReactor<pb::Announcement, pb::AnnounceReply>* RegistryService::Announce(grpc::CallbackServerContext*) {
  std::shared_ptr<AnnounceSession> session;
  {
    absl::MutexLock lock(&mutex_);
    const uint64_t id = next_session_++;
    session = std::make_shared<AnnounceSession>(this, id);
    sessions_[id] = session;
  }
  session->Begin();
  return session.get();
}

std::shared_ptr<AnnounceSession> RegistryService::Find(uint64_t session) {
  absl::MutexLock lock(&mutex_);
  auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : it->second;
}

void RegistryService::Answer(const AnswerAnnounce& action) {
  if (auto session = Find(action.session); session != nullptr) session->Answer(action.reply);
}

void RegistryService::Close(const CloseAnnounce& action) {
  if (auto session = Find(action.session); session != nullptr) session->Close(action.status);
}

void RegistryService::Ended(uint64_t session) {
  std::shared_ptr<AnnounceSession> last;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  last = std::move(sessions_[session]);
  sessions_.erase(session);
}

}  // namespace sluice::router
