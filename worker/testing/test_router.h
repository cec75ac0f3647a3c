// A router's end of a Work stream over real gRPC, for tests: writes what it is told, collects what it hears.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "proto/worker.grpc.pb.h"

namespace sluice::worker {

class TestRouter {
 public:
  enum Reading { kReads, kNeverReads };

  explicit TestRouter(int port, Reading reading = kReads)
      : stub_(v1::Worker::NewStub(ConnectTo(port))), stream_(stub_->Work(&context_)) {
    if (reading == kReads) reader_ = std::thread([this] { Read(); });
  }

  ~TestRouter() {
    context_.TryCancel();
    if (reader_.joinable()) reader_.join();
  }

  bool Send(const v1::RouterMessage& message) { return stream_->Write(message); }
  void HalfClose() { stream_->WritesDone(); }
  void Vanish() { context_.TryCancel(); }

  // Waits until an event fits (of those so far, too). False after ten seconds or at the stream's end.
  bool Await(const std::function<bool(const v1::WorkerEvent&)>& fits) {
    auto found = [&] { return std::any_of(events_.begin(), events_.end(), fits); };
    auto over = [&] { return ended_ || found(); };
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&over), absl::Seconds(30));
    return found();
  }

  bool AwaitOf(const std::string& id, const std::function<bool(const v1::WorkerEvent&)>& fits) {
    return Await([&](const v1::WorkerEvent& event) { return event.key().request_id() == id && fits(event); });
  }

  // The stream's status; the test hangs if the worker does not end it. REQUIRES: reads.
  grpc::Status AwaitEnd() {
    if (reader_.joinable()) reader_.join();
    return status_;
  }

  std::vector<v1::WorkerEvent> events() {
    absl::MutexLock lock(&mutex_);
    return events_;
  }

  std::vector<int32_t> TokensOf(const std::string& id) {
    std::vector<int32_t> tokens;
    for (const v1::WorkerEvent& event : events()) {
      if (event.key().request_id() != id || !event.has_tokens()) continue;
      tokens.insert(tokens.end(), event.tokens().token_ids().begin(), event.tokens().token_ids().end());
    }
    return tokens;
  }

  uint64_t worker_incarnation() {
    absl::MutexLock lock(&mutex_);
    return hello_.worker_incarnation();
  }

 private:
  static std::shared_ptr<grpc::Channel> ConnectTo(int port) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments);
  }

  void Read() {
    v1::WorkerMessage message;
    while (stream_->Read(&message)) {
      absl::MutexLock lock(&mutex_);
      if (message.has_hello()) hello_ = message.hello();
      for (const v1::WorkerEvent& event : message.events()) events_.push_back(event);
    }
    status_ = stream_->Finish();
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }

  std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::RouterMessage, v1::WorkerMessage>> stream_;
  grpc::Status status_;
  std::thread reader_;
  absl::Mutex mutex_;
  std::vector<v1::WorkerEvent> events_;
  v1::WorkerHello hello_;
  bool ended_ = false;
};

inline bool IsGranted(const v1::WorkerEvent& event) {
  return event.has_lease_granted();
}
inline bool IsRefused(const v1::WorkerEvent& event) {
  return event.has_refused();
}
inline bool IsFinished(const v1::WorkerEvent& event) {
  return event.has_finished();
}
inline bool IsTokens(const v1::WorkerEvent& event) {
  return event.has_tokens();
}
inline std::function<bool(const v1::WorkerEvent&)> FailedWith(v1::ErrorReason reason) {
  return [reason](const v1::WorkerEvent& event) {
    return event.has_failed() && event.failed().error().reason() == reason;
  };
}

}  // namespace sluice::worker
