#include "cli/models.h"

#include <chrono>
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
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

struct Served {
  std::set<std::string> numerics;
  std::map<std::string, int> workers = {{"prefill", 0}, {"decode", 0}, {"both", 0}};
};

Served Active(const v1::ClusterState& state) {
  Served served;
  for (const v1::WorkerStatus& worker : state.workers()) {
    if (worker.state() != v1::WORKER_STATE_ACTIVE) continue;
    served.numerics.insert(worker.numerics());
    ++served.workers[RoleName(worker.role())];
  }
  return served;
}

}  // namespace

json ModelsJson(const v1::ClusterState& state) {
  json models = json::array();
  if (!state.model().empty()) {
    const Served served = Active(state);
    models.push_back({{"name", state.model()},
                      {"context_length", state.context_length()},
                      {"numerics", served.numerics},
                      {"workers", served.workers}});
  }
  return {{"models", std::move(models)}};
}

std::string ModelsTable(const v1::ClusterState& state) {
  if (state.model().empty()) return "no model\n";
  const Served served = Active(state);
  std::string workers;
  for (const auto& [role, count] : served.workers) {
    if (count > 0) absl::StrAppend(&workers, workers.empty() ? "" : ", ", count, " ", role);
  }
  return RenderTable(
      {{"MODEL", "CONTEXT", "NUMERICS", "WORKERS"},
       {state.model(), absl::StrCat(state.context_length()),
        served.numerics.empty() ? "-" : absl::StrJoin(served.numerics, ", "), workers.empty() ? "none" : workers}});
}

int RunModels(const ModelsOptions& options) {
  const auto complain = [](const std::string& what, int code) {
    std::cerr << "sluice: " << what << "\n";
    return code;
  };
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.router, absl::Seconds(5));
  if (!channel.ok()) return complain(std::string(channel.status().message()), kExitServer);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::ClusterState state;
  const grpc::Status status = v1::Cluster::NewStub(*channel)->GetState(&context, v1::GetStateRequest(), &state);
  if (!status.ok()) return complain(DescribeError(status), ExitCodeFor(status));
  const absl::Status shown =
      Print(options.json ? ModelsJson(state).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                         : ModelsTable(state));
  return shown.ok() ? kExitOk : complain(std::string(shown.message()), kExitServer);
}

}  // namespace sluice::cli
