#include "worker/worker_main.h"

#include <stdlib.h>
#include <string.h>

#include <iostream>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "worker/rank_group.h"
#include "worker/shutdown_signal.h"
#include "worker/worker_server.h"

namespace sluice::worker {
namespace {

int Complain(const RoleDescription& role, const absl::Status& status, int exit_code) {
  std::cerr << role.program << ": " << std::string(status.message()) << std::endl;
  return exit_code;
}

void StartLogging(const RoleDescription& role, const WorkerOptions& options) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = options.log_level == "error" ? 2 : options.log_level == "warning" ? 1 : 0;
  static const std::string& name = *new std::string(role.program);  // glog keeps the pointer
  google::InitGoogleLogging(name.c_str());
}

void PrintReady(const RoleDescription& role, const v1::WorkerInfo& info) {
  std::string name = v1::Role_Name(info.role()).substr(strlen("ROLE_"));
  for (char& c : name) c = char(tolower(c));
  std::cout << absl::StrFormat("%s ready: role=%s port=%d pid=%d model=\"%s\" blocks=%d numerics=%s", role.program,
                               name, info.work().port(), info.pid(), info.model(), info.blocks_total(),
                               info.fingerprint().numerics())
            << std::endl;
}

}  // namespace

int WorkerMain(const RoleDescription& role, const RoleFactory& make_role, int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // what matters reaches us as a status
  absl::StatusOr<ParsedOptions> parsed = ParseOptions(role, argc, argv);
  if (!parsed.ok()) {
    return Complain(role,
                    absl::InvalidArgumentError(
                        absl::StrFormat("%s (see %s --help)", std::string(parsed.status().message()), role.program)),
                    2);
  }
  if (!parsed->options) {
    std::cout << parsed->text << std::flush;
    return 0;
  }
  StartLogging(role, *parsed->options);
  if (parsed->options->tp_rank > 0) {
    const absl::Status ended = RunFollowingRank(*parsed->options);
    return ended.ok() ? 0 : Complain(role, ended, 1);
  }
  ShutdownSignal shutdown;
  auto server = WorkerServer::Start(*parsed->options, make_role, [&shutdown] { shutdown.Trigger(); });
  if (!server.ok()) return Complain(role, server.status(), 1);
  shutdown.MarkReady();
  PrintReady(role, (*server)->info());
  const int signal = shutdown.Wait();

  const absl::Status failed = (*server)->engine_error();
  if (failed.ok()) {
    LOG(INFO) << "stopping: " << strsignal(signal);
  } else {
    LOG(ERROR) << "the engine failed, stopping: " << failed;
  }
  const int exit_code = failed.ok() ? 0 : 1;
  if (!(*server)->Stop()) {
    LOG(WARNING) << "a step is still running; leaving without waiting for it";
    _exit(exit_code);
  }
  return exit_code;
}

}  // namespace sluice::worker
