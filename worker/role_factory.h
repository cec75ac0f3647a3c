// How a role comes into a worker: what the server offers it, and what it gives back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "kvtransfer/piece_copy.h"
#include "proto/cluster_key.h"
#include "proto/transport_security.h"
#include "proto/worker.pb.h"
#include "worker/engine_loop.h"
#include "worker/engine_port.h"
#include "worker/options.h"
#include "worker/report_board.h"
#include "worker/request_table.h"
#include "worker/role.h"

namespace sluice::worker {

// All of it outlives the role.
struct RoleEnvironment {
  const WorkerOptions& options;
  const ClusterKey& key;
  const TransportSecurity& security;
  const v1::WorkerInfo& info;  // complete but for the port, which is known once the worker listens
  kvtransfer::PoolView kv;
  EnginePort& engine;
  RequestTable& requests;
  EngineLoop& loop;  // not started yet: PostTask only
  ReportBoard& board;
  std::function<void()> report_soon;  // the board has news that does not wait; any thread
};

// A role with the threads and links that belong to it. Its own threads reach the role by EngineLoop::PostTask only.
class RoleInstance {
 public:
  // Dies after the engine loop and the gRPC server have stopped. No task that it posts from here on is run.
  virtual ~RoleInstance() = default;

  virtual Role& role() = 0;

  // To be registered with the worker's server; they live as long as the instance.
  virtual std::vector<grpc::Service*> services() { return {}; }

  // The decode workers there are now: HOST:PORT by incarnation. On a thread of the registration's.
  virtual void SetPeers(std::map<uint64_t, std::string>) {}
};

using RoleFactory = std::function<absl::StatusOr<std::unique_ptr<RoleInstance>>(const RoleEnvironment&)>;

}  // namespace sluice::worker
