#include "cli/drain.h"

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/channel.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "proto/serving.grpc.pb.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(200);
constexpr absl::Duration kTell = absl::Seconds(5);

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
}

int Complain(const grpc::Status& status) {
  std::cerr << "sluice: " << DescribeError(status) << "\n";
  return ExitCodeFor(status);
}

// What the worker still has, or nullopt when it is gone.
std::optional<int> Left(const v1::ClusterState& state, const std::string& address) {
  for (const v1::WorkerStatus& worker : state.workers()) {
    if (worker.state() == v1::WORKER_STATE_GONE) continue;
    if (absl::StrCat(worker.host(), ":", worker.port()) != address) continue;
    return std::max(worker.requests(), worker.running() + worker.waiting());
  }
  return std::nullopt;
}

}  // namespace

int RunDrain(const DrainOptions& options) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.router, absl::Seconds(5));
  if (!channel.ok()) {
    std::cerr << "sluice: " << channel.status().message() << "\n";
    return kExitServer;
  }
  const std::unique_ptr<v1::Cluster::Stub> stub = v1::Cluster::NewStub(*channel);
  v1::DrainRequest request;
  request.set_worker(options.worker);
  request.set_hand_over(options.hand_over);
  v1::DrainResponse response;
  {
    grpc::ClientContext context;
    SetDeadline(context);
    if (grpc::Status status = stub->Drain(&context, request, &response); !status.ok()) return Complain(status);
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(options.timeout_s);
  absl::Time tell = absl::Now() + kTell;
  for (;;) {
    if (options.timeout_s <= 0) return kExitOk;
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ClusterState state;
    if (grpc::Status status = stub->GetState(&context, v1::GetStateRequest(), &state); !status.ok()) {
      return Complain(status);
    }
    const std::optional<int> left = Left(state, options.worker);
    if (!left.has_value() || *left == 0) return kExitOk;
    if (absl::Now() >= deadline) {
      std::cerr << absl::StrFormat("sluice: %s still has %d requests after %.0f s; it gets no new ones\n",
                                   options.worker, *left, options.timeout_s);
      return kExitServer;
    }
    if (absl::Now() >= tell) {
      std::cerr << absl::StrFormat("%s: %d requests left\n", options.worker, *left);
      tell += kTell;
    }
    absl::SleepFor(kPoll);
  }
}

}  // namespace sluice::cli
