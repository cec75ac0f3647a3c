#include "router/worker_link.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/worker.grpc.pb.h"
#include "router/grpc_status.h"
#include "router/registry.h"

namespace sluice::router {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const pb::Endpoint& endpoint, const LinkOptions& options) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, int(absl::ToInt64Milliseconds(options.keepalive_time)));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, int(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection of its own: a restarted worker on the same address must not inherit the old one's backoff.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(-1);
  const auto credentials = options.security.client(args);
  return grpc::CreateCustomChannel(absl::StrCat(endpoint.host(), ":", endpoint.port()), credentials, args);
}

}  // namespace

// The hold keeps the call alive while writes may still be started from the core's thread; it is given back when reading
// ends, which is how every stream ends.
class WorkerLink final : public grpc::ClientBidiReactor<pb::RouterMessage, pb::WorkerMessage> {
 public:
  WorkerLink(WorkerLinks* owner, uint64_t link) : owner_(owner), link_(link) {}

  void Begin(const ConnectWorker& action, const LinkOptions& options) {
    stub_ = pb::Worker::NewStub(MakeChannel(action.endpoint, options));
    stub_->async()->Work(&context_, this);
    AddHold();
    StartRead(&incoming_);
    pb::RouterMessage hello;
    hello.mutable_hello()->set_router_incarnation(options.router_incarnation);
    hello.mutable_hello()->set_worker_incarnation(action.incarnation);
    hello.mutable_hello()->set_protocol_version(kProtocolVersion);
    hello.mutable_hello()->set_auth(options.key.Proof("work", {options.router_incarnation, action.incarnation}));
    worker_incarnation_ = action.incarnation;
    Send(std::move(hello));
    StartCall();
  }

  void Send(pb::RouterMessage message) {
    absl::MutexLock lock(&mutex_);
    outbox_.push_back(std::move(message));
    WriteNext();
  }

  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    outbox_.pop_front();
    if (!ok) closed_ = true;
    WriteNext();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        absl::MutexLock lock(&mutex_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    if (!greeted_) {
      greeted_ = true;
      if (incoming_.has_hello() &&
          !owner_->options_.key.Accepts(incoming_.hello().auth(), "work answer",
                                        {owner_->options_.router_incarnation, worker_incarnation_})) {
        stranger_ = true;
        Cancel();
        return RemoveHold();
      }
      if (incoming_.has_hello()) {
        owner_->post_(LinkUp{link_, incoming_.hello()});
      } else {
        Cancel();
      }
    }
    owner_->post_(WorkerBatch{link_, std::move(incoming_)});
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status why = FromGrpc(status);
    if (why.ok()) why = absl::UnavailableError("the worker closed it");
    if (stranger_) {
      why = absl::UnauthenticatedError("the worker does not have this cluster's key; give all the same --cluster-key");
    }
    owner_->Ended(link_, why);  // from here on another thread may destroy this
  }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || closed_ || outbox_.empty()) return;
    writing_ = true;
    StartWrite(&outbox_.front());
  }

  WorkerLinks* const owner_;
  const uint64_t link_;
  grpc::ClientContext context_;
  std::unique_ptr<pb::Worker::Stub> stub_;
  pb::WorkerMessage incoming_;
  uint64_t worker_incarnation_ = 0;
  bool stranger_ = false;  // likewise
  bool greeted_ = false;   // only in reading callbacks, which never overlap

  absl::Mutex mutex_;
  std::deque<pb::RouterMessage> outbox_ ABSL_GUARDED_BY(mutex_);  // the front is in flight while `writing_`
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

WorkerLinks::~WorkerLinks() {
  CloseAll();
}

// The dead ones, outside the lock.
void WorkerLinks::Bury() {
  std::vector<std::shared_ptr<WorkerLink>> dead;
  absl::MutexLock lock(&mutex_);
  dead.swap(dead_);
}

void WorkerLinks::Connect(const ConnectWorker& action) {
  Bury();
  auto link = std::make_shared<WorkerLink>(this, action.link);
  {
    absl::MutexLock lock(&mutex_);
    links_[action.link] = link;
  }
  link->Begin(action, options_);
}

std::shared_ptr<WorkerLink> WorkerLinks::Find(uint64_t link) {
  absl::MutexLock lock(&mutex_);
  auto it = links_.find(link);
  return it == links_.end() ? nullptr : it->second;
}

void WorkerLinks::Disconnect(uint64_t link) {
  if (auto found = Find(link); found != nullptr) found->Cancel();
}

void WorkerLinks::Send(SendToWorker action) {
  Bury();
  if (auto found = Find(action.link); found != nullptr) found->Send(std::move(action.message));
}

// On a thread of gRPC's.
void WorkerLinks::Ended(uint64_t link, const absl::Status& why) {
  post_(LinkDown{link, why});
  absl::MutexLock lock(&mutex_);
  dead_.push_back(std::move(links_[link]));
  links_.erase(link);
}

void WorkerLinks::CloseAll() {
  std::vector<std::shared_ptr<WorkerLink>> open;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, link] : links_) open.push_back(link);
  }
  for (const auto& link : open) link->Cancel();
  open.clear();
  {
    const auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return links_.empty(); };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&none));
  }
  Bury();
}

}  // namespace sluice::router
