// A router with its whole edge over loopback and scripted workers: what the tests of both transports share.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/serving.grpc.pb.h"
#include "router/router_server.h"
#include "router/testing/fake_worker.h"
#include "router/testing/tiny_served_model.h"

namespace sluice::router {

constexpr int kContext = 65536;
constexpr RouterCore::Sizes kEmpty{};

// Waits for what must happen soon; generous, because machines are slow under load.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

class FrontWorld : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new TinyServedModel(kContext); }
  static void TearDownTestSuite() { delete model_; }

  void StartRouter(ServerOptions options = {}) {
    options.grpc_port = 0;
    options.core.registry.model = "tiny";
    options.core.registry.model_hash = "abcdef";
    options.core.registry.lease = absl::Seconds(3);
    options.core.context_length = kContext;
    options.core.request.moves.wait = absl::Milliseconds(300);  // for a worker that can go on; most tests have one
    auto started = RouterServer::Start(options, model_->served());
    ASSERT_TRUE(started.ok()) << started.status();
    router_ = *std::move(started);
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", router_->port()), grpc::InsecureChannelCredentials());
    stub_ = pb::Inference::NewStub(channel_);
  }

  std::unique_ptr<FakeWorker> StartWorker(const FakeScript& script = {}, FakeWorkerOptions options = {}) {
    auto worker = std::make_unique<FakeWorker>(options, script, router_->port());
    EXPECT_TRUE(Eventually([&] {
      const pb::ClusterState state = State();
      return std::any_of(state.workers().begin(), state.workers().end(), [&](const pb::WorkerStatus& w) {
        return w.incarnation() == options.incarnation && w.state() == pb::WORKER_STATE_ACTIVE;
      });
    }));
    return worker;
  }

  pb::ClusterState State() {
    grpc::ClientContext context;
    if (!key_.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", key_));
    pb::ClusterState state;
    EXPECT_TRUE(pb::Cluster::NewStub(channel_)->GetState(&context, {}, &state).ok());
    return state;
  }

  void ExpectClean(const FakeWorker& worker) {
    EXPECT_TRUE(Eventually([&] { return router_->sizes() == kEmpty && worker.live() == 0; }))
        << router_->sizes().requests << " requests, " << worker.live() << " at the worker";
  }

  static inline TinyServedModel* model_ = nullptr;
  std::unique_ptr<RouterServer> router_;
  std::string key_;  // of the API, where it has any
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Inference::Stub> stub_;
};

}  // namespace sluice::router
