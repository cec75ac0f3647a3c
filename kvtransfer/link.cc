#include "kvtransfer/link.h"

#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::kvtransfer {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// What is to be written, one write under way at a time. The rule that keeps gRPC's objects alive: `writing` is set
// under the mutex before StartWrite is called, and the call is ended only while nothing is being written.
template <typename Out>
struct WriteQueue {
  std::deque<Out> waiting;
  Out current;  // of the write under way
  bool writing = false;
  bool ended = false;  // nothing more is queued

  // True: the caller starts a write of `current`, without the mutex.
  bool Next() {
    if (writing || waiting.empty()) return false;
    current = std::move(waiting.front());
    waiting.pop_front();
    return writing = true;
  }
};

class ClientLink final : public grpc::ClientBidiReactor<v1::SenderMessage, v1::ReceiverMessage>,
                         public SenderLink,
                         public std::enable_shared_from_this<ClientLink> {
 public:
  ClientLink(const std::shared_ptr<grpc::Channel>& channel, LinkHandler<v1::ReceiverMessage> handler)
      : stub_(v1::Transfer::NewStub(channel)), handler_(std::move(handler)) {}

  void Begin() {
    self_ = shared_from_this();
    stub_->async()->Link(&context_, this);
    AddHold();  // writes start outside of reactions; removed once, when no more will
    StartRead(&incoming_);
    StartCall();
  }

  void Send(v1::SenderMessage message) override {
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.ended) return;
      queue_.waiting.push_back(std::move(message));
      if (!queue_.Next()) return;
    }
    StartWrite(&queue_.current);
  }

  // A write towards a peer that stands still does not end, so nothing waits for it.
  void Close(const absl::Status&) override { End(); }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    handler_.on_message(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    bool write = false;
    {
      absl::MutexLock lock(&mutex_);
      queue_.writing = false;
      if (!ok || lost_) queue_.waiting.clear();
      write = queue_.Next();
      if (!write && lost_ && !std::exchange(hold_removed_, true)) release_hold_ = true;
    }
    if (write) StartWrite(&queue_.current);
    if (!ok) End();
    ReleaseHold();
  }

  void OnDone(const grpc::Status& status) override {
    // The stub and the context refer to the channel, whose last reference must not go on this thread: they are gone
    // before on_end lets the caller of OpenLink give up its own. Nothing of this object is used after that.
    stub_.reset();
    const LinkHandler<v1::ReceiverMessage> handler = std::exchange(handler_, {});
    std::shared_ptr<ClientLink> last = std::move(self_);
    last.reset();
    handler.on_end(FromGrpc(status));
  }

 private:
  // Cancels the call; when nothing is being written the hold goes too, and OnDone follows.
  void End() {
    context_.TryCancel();
    {
      absl::MutexLock lock(&mutex_);
      lost_ = queue_.ended = true;
      queue_.waiting.clear();
      if (!queue_.writing && !std::exchange(hold_removed_, true)) release_hold_ = true;
    }
    ReleaseHold();
  }

  void ReleaseHold() {
    {
      absl::MutexLock lock(&mutex_);
      if (!std::exchange(release_hold_, false)) return;
    }
    RemoveHold();
  }

  std::unique_ptr<v1::Transfer::Stub> stub_;
  LinkHandler<v1::ReceiverMessage> handler_;
  grpc::ClientContext context_;
  v1::ReceiverMessage incoming_;
  absl::Mutex mutex_;
  WriteQueue<v1::SenderMessage> queue_;  // `current` belongs to whoever set `writing`
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_removed_ ABSL_GUARDED_BY(mutex_) = false;
  bool release_hold_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ClientLink> self_;
};

class ServerLink final : public grpc::ServerBidiReactor<v1::SenderMessage, v1::ReceiverMessage>,
                         public ReceiverLink,
                         public std::enable_shared_from_this<ServerLink> {
 public:
  void Begin(const LinkAcceptor& accept) {
    self_ = shared_from_this();
    handler_ = accept(self_);
    StartRead(&incoming_);
  }

  void Send(v1::ReceiverMessage message) override {
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.ended) return;
      queue_.waiting.push_back(std::move(message));
      if (!queue_.Next()) return;
    }
    StartWrite(&queue_.current);
  }

  void Close(const absl::Status& why) override { End(why, /*drop=*/false); }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus(), /*drop=*/true);
    handler_.on_message(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      queue_.writing = false;
    }
    if (!ok) return End(absl::UnavailableError("the link is lost"), /*drop=*/true);
    Advance();
  }

  void OnCancel() override { End(absl::CancelledError("the sender ended the link"), /*drop=*/true); }

  void OnDone() override {
    // The handler may hold this link: it is given up here, with the last message behind it.
    const LinkHandler<v1::SenderMessage> handler = std::exchange(handler_, {});
    handler.on_end(absl::UnavailableError("the link to the prefill worker has ended"));
    std::shared_ptr<ServerLink> last = std::move(self_);
  }

 private:
  void End(const absl::Status& status, bool drop) {
    {
      absl::MutexLock lock(&mutex_);
      queue_.ended = true;
      if (drop) queue_.waiting.clear();
      if (!status_) status_ = status;
    }
    Advance();
  }

  void Advance() {
    bool write = false;
    std::optional<absl::Status> finish;
    {
      absl::MutexLock lock(&mutex_);
      write = queue_.Next();
      if (!write && !queue_.writing && status_ && !std::exchange(finished_, true)) finish = status_;
    }
    if (write) StartWrite(&queue_.current);
    if (finish) Finish(ToGrpc(*finish));
  }

  LinkHandler<v1::SenderMessage> handler_;
  v1::SenderMessage incoming_;
  absl::Mutex mutex_;
  WriteQueue<v1::ReceiverMessage> queue_;                       // `current` belongs to whoever set `writing`
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // set: Finish with it when nothing is left to write
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ServerLink> self_;
};

}  // namespace

std::shared_ptr<SenderLink> OpenLink(const std::shared_ptr<grpc::Channel>& channel,
                                     LinkHandler<v1::ReceiverMessage> handler) {
  auto link = std::make_shared<ClientLink>(channel, std::move(handler));
  link->Begin();
  return link;
}

grpc::ServerBidiReactor<v1::SenderMessage, v1::ReceiverMessage>* LinkService::Link(grpc::CallbackServerContext*) {
  auto link = std::make_shared<ServerLink>();
  link->Begin(accept_);
  return link.get();
}

}  // namespace sluice::kvtransfer
