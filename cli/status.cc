#include "cli/status.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/channel.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "cli/table.h"
#include "proto/names.h"
#include "proto/serving.grpc.pb.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

// Counts since the worker started.
json EngineJson(const v1::EngineCounters& e) {
  return {{"steps", e.steps()},
          {"rows", e.rows()},
          {"preemptions", e.preemptions()},
          {"block_copies", e.block_copies()},
          {"looked_up_tokens", e.looked_up_tokens()},
          {"hit_tokens", e.hit_tokens()},
          {"evicted_blocks", e.evicted_blocks()},
          {"cached_blocks", e.cached_blocks()},
          {"drafted_tokens", e.drafted_tokens()},
          {"accepted_tokens", e.accepted_tokens()},
          {"plan_seconds", e.plan_seconds()},
          {"execute_seconds", e.execute_seconds()},
          {"sample_seconds", e.sample_seconds()},
          {"commit_seconds", e.commit_seconds()},
          {"bytes_to_host", e.bytes_to_host()},
          {"steps_ahead", e.steps_ahead()}};
}

// What it sent to a peer, or took from one, since it started.
json FlowJson(const v1::KvFlow& f) {
  return {{"peer", f.peer()},
          {"peer_incarnation", absl::StrCat(f.peer_incarnation())},
          {"channel", f.channel()},
          {"bytes", f.bytes()},
          {"pieces", f.pieces()},
          {"transfers", f.transfers()},
          {"failed_transfers", f.failed_transfers()},
          {"corrupt_pieces", f.corrupt_pieces()},
          {"void_pieces", f.void_pieces()},
          {"epochs", f.epochs()},
          {"aborts", f.aborts()},
          {"stale_messages", f.stale_messages()},
          {"busy_seconds", f.busy_seconds()},
          {"exposed_seconds", f.exposed_seconds()},
          {"bytes_per_second", f.busy_seconds() > 0 ? double(f.bytes()) / f.busy_seconds() : 0.0}};
}

json FlowsJson(const v1::WorkerStatus& worker) {
  json flows = json::array();
  for (const v1::KvFlow& flow : worker.kv_flows()) flows.push_back(FlowJson(flow));
  return flows;
}

// One line a pair and side; empty where no KV moves.
std::string FlowTable(const v1::ClusterState& state) {
  std::vector<Row> rows = {{"WORKER", "KV TO/FROM", "CHANNEL", "MB", "TRANSFERS", "FAILED", "MB/S", "EXPOSED MS",
                            "EPOCHS", "CORRUPT", "VOID"}};
  for (const v1::WorkerStatus& worker : state.workers()) {
    for (const v1::KvFlow& flow : worker.kv_flows()) {
      const double megabytes = double(flow.bytes()) / 1e6;
      rows.push_back(
          {absl::StrCat(RoleName(worker.role()), " ", worker.port()),
           flow.peer().empty() ? absl::StrCat(flow.peer_incarnation()) : flow.peer(),
           flow.channel().empty() ? "down" : flow.channel(), absl::StrFormat("%.1f", megabytes),
           absl::StrCat(flow.transfers()), absl::StrCat(flow.failed_transfers()),
           flow.busy_seconds() > 0 ? absl::StrFormat("%.0f", megabytes / flow.busy_seconds()) : "-",
           flow.transfers() > 0 ? absl::StrFormat("%.1f", flow.exposed_seconds() * 1e3 / double(flow.transfers()))
                                : "-",
           absl::StrCat(flow.epochs()), absl::StrCat(flow.corrupt_pieces()), absl::StrCat(flow.void_pieces())});
    }
  }
  return rows.size() == 1 ? "" : RenderTable(rows);
}

}  // namespace

json StateJson(const v1::ClusterState& state) {
  json workers = json::array();
  for (const v1::WorkerStatus& worker : state.workers()) {
    workers.push_back({{"role", RoleName(worker.role())},
                       {"pid", worker.pid()},
                       {"port", worker.port()},
                       {"state", WorkerStateName(worker.state())},
                       {"blocks_total", worker.blocks_total()},
                       {"blocks_free", worker.blocks_free()},
                       {"running", worker.running()},
                       {"waiting", worker.waiting()},
                       {"host", worker.host()},
                       {"model", worker.model()},
                       {"numerics", worker.numerics()},
                       {"engine", EngineJson(worker.engine())},
                       {"kv_flows", FlowsJson(worker)},
                       // 64 bits do not survive every JSON reader as a number.
                       {"incarnation", absl::StrCat(worker.incarnation())}});
  }
  return {{"workers", std::move(workers)},
          {"model", state.model()},
          {"router_version", state.router_version()},
          {"router_incarnation", absl::StrCat(state.router_incarnation())},
          {"queued", state.queued()},
          {"running", state.running()},
          {"context_length", state.context_length()}};
}

std::string StateTable(const v1::ClusterState& state, const std::string& router) {
  std::string out = absl::StrFormat("router %s  model %s  context %d  queued %d  running %d\n", router,
                                    state.model().empty() ? "-" : state.model(), state.context_length(), state.queued(),
                                    state.running());
  if (state.workers().empty()) return out + "no workers\n";
  std::vector<Row> rows = {{"ROLE", "PID", "PORT", "STATE", "BLOCKS FREE/TOTAL", "RUNNING", "WAITING", "NUMERICS"}};
  for (const v1::WorkerStatus& worker : state.workers()) {
    rows.push_back({RoleName(worker.role()), absl::StrCat(worker.pid()), absl::StrCat(worker.port()),
                    WorkerStateName(worker.state()), absl::StrCat(worker.blocks_free(), "/", worker.blocks_total()),
                    absl::StrCat(worker.running()), absl::StrCat(worker.waiting()), worker.numerics()});
  }
  absl::StrAppend(&out, RenderTable(rows));
  const std::string flows = FlowTable(state);
  return flows.empty() ? out : absl::StrCat(out, "\n", flows);
}

int RunStatus(const StatusOptions& options) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.router, absl::Seconds(5));
  if (!channel.ok()) {
    std::cerr << "sluice: " << channel.status().message() << "\n";
    return kExitServer;
  }
  std::unique_ptr<v1::Cluster::Stub> stub = v1::Cluster::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::ClusterState state;
  grpc::Status status = stub->GetState(&context, v1::GetStateRequest(), &state);
  if (!status.ok()) {
    std::cerr << "sluice: " << DescribeError(status) << "\n";
    return ExitCodeFor(status);
  }
  const std::string text = options.json ? StateJson(state).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                                        : StateTable(state, options.router);
  if (absl::Status shown = Print(text); !shown.ok()) {
    std::cerr << "sluice: " << shown.message() << "\n";
    return kExitServer;
  }
  return kExitOk;
}

}  // namespace sluice::cli
