// sluice_router: opens the model, serves until SIGTERM or SIGINT.
#include <glog/logging.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "config/config_file.h"
#include "engine/files/chat_template_file.h"
#include "engine/files/model_file.h"
#include "engine/text/tokenizer.h"
#include "proto/discovery/key_keeper.h"
#include "router/options.h"
#include "router/router_server.h"

namespace sluice::router {
namespace {

void StartLogging(const std::string& level) {
  FLAGS_logtostderr = true;
  FLAGS_v = level == "debug" ? 1 : 0;
  FLAGS_minloglevel = level == "error" ? google::GLOG_ERROR : level == "warning" ? google::GLOG_WARNING : 0;
  google::InitGoogleLogging("sluice_router");
  // gRPC's own log repeats what statuses say, in its own format.
  gpr_set_log_function([](gpr_log_func_args* args) { VLOG(1) << "grpc: " << args->message; });
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "sluice_router: %s\n", std::string(status.message()).c_str());
  return 1;
}

ServerOptions MakeServerOptions(const Options& options, const engine::ModelFile& file, const ServedModel& model) {
  std::random_device device;
  const uint64_t incarnation = (uint64_t{device()} << 32 | device()) | 1;
  ServerOptions server;
  server.host = options.host;
  server.grpc_port = options.grpc_port;
  server.http.host = options.http_host.empty() ? options.host : options.http_host;
  server.http.port = options.http_port;
  server.http.tls_cert = options.http_tls_cert;
  server.http.tls_key = options.http_tls_key;
  server.http.cors_origins = options.cors_origins;
  server.links.router_incarnation = incarnation;
  server.core.router_incarnation = incarnation;
  server.core.seed = incarnation;
  server.core.queue = {options.queue_limit, options.tenant_queue_limit, options.tenant_weights};
  server.core.policy = {*PolicyOf(options.policy), options.local_prefill_tokens, options.fallback_both};
  server.core.ttft_slo = absl::Milliseconds(options.ttft_slo_ms);
  server.core.tpot_slo = absl::Milliseconds(options.tpot_slo_ms);
  server.core.prefix_entries = size_t(options.prefix_entries);
  server.core.request.headroom_tokens = options.headroom_tokens;
  server.core.request.moves.in_a_row = options.max_moves;
  server.core.request.moves.wait = absl::Milliseconds(options.failover_wait_ms);
  server.core.explain = options.log_level == "debug";
  server.core.version = SLUICE_VERSION;
  server.core.context_length = model.context_length;
  server.core.registry.model = model.name;
  server.core.registry.model_hash = file.ContentHash();
  server.core.registry.lease = absl::Milliseconds(options.lease_ms);
  server.core.registry.heartbeat = absl::Milliseconds(options.heartbeat_ms);
  return server;
}

// The flag's, or the model's.
absl::StatusOr<engine::ChatTemplate> ReadTemplate(const Options& options, const engine::ModelFile& file) {
  if (options.chat_template.empty()) return engine::ChatTemplate::Create(file.tokenizer());
  absl::StatusOr<engine::ChatTemplateFile> read = engine::ReadChatTemplateFile(options.chat_template);
  if (!read.ok()) return read.status();
  return engine::ChatTemplate::Create(file.tokenizer(), std::move(read->jinja), std::move(read->tool_use_jinja));
}

// Null without a registry.
std::unique_ptr<discovery::KeyKeeper> StandIn(const Options& options, int port, uint64_t incarnation) {
  if (options.registry.embedded()) return nullptr;
  // Looked at before the model was opened.
  const std::string address = *discovery::DialledAddress(options.host, options.advertise, port);
  auto keeper = std::make_unique<discovery::KeyKeeper>(options.registry,
                                                       discovery::RouterKey(options.registry, incarnation), address);
  keeper->Start();
  return keeper;
}

int Serve(const Options& options) {
  if (const auto address = discovery::DialledAddress(options.host, options.advertise, 1);
      !options.registry.embedded() && !address.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--registry: ", std::string(address.status().message()))));
  }
  // Blocked before any thread starts, so that only sigwait takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  absl::StatusOr<std::unique_ptr<engine::ModelFile>> file = engine::OpenModel(options.model);
  if (!file.ok()) return Fail(file.status());
  absl::StatusOr<std::unique_ptr<engine::Tokenizer>> tokenizer = engine::Tokenizer::Create((*file)->tokenizer());
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  ServedModel model = Describe(**file, **tokenizer, options.model, options.served_model_name);
  absl::StatusOr<engine::ChatTemplate> chat_template = ReadTemplate(options, **file);
  if (!chat_template.ok()) {
    if (!options.chat_template.empty()) {
      return Fail(
          absl::InvalidArgumentError(absl::StrCat("--chat-template: ", std::string(chat_template.status().message()))));
    }
    model.no_chat_template = std::string(chat_template.status().message());
    LOG(WARNING) << "no conversations: " << model.no_chat_template;
  } else {
    model.chat_template = &*chat_template;
  }
  ServerOptions server_options = MakeServerOptions(options, **file, model);
  absl::StatusOr<ApiKeys> keys = ApiKeys::Read(options.api_keys);
  if (!keys.ok()) return Fail(keys.status());
  server_options.http.keys = *std::move(keys);
  absl::StatusOr<ClusterKey> key = ClusterKey::Read(options.cluster_key);
  if (!key.ok()) return Fail(key.status());
  absl::StatusOr<TransportSecurity> security = TransportSecurity::Read(options.tls);
  if (!security.ok()) return Fail(security.status());
  server_options.links.key = *std::move(key);
  server_options.links.security = *std::move(security);
  absl::StatusOr<std::unique_ptr<RouterServer>> server = RouterServer::Start(server_options, model);
  if (!server.ok()) return Fail(server.status());

  const int http_port = (*server)->http_port();
  const std::string http = http_port < 0 ? "off" : absl::StrCat(server_options.http.host, ":", http_port);
  std::printf("sluice_router ready: grpc=%s:%d http=%s pid=%d model=\"%s\"\n", options.host.c_str(), (*server)->port(),
              http.c_str(), int(getpid()), model.name.c_str());
  std::fflush(stdout);

  const std::unique_ptr<discovery::KeyKeeper> standing =
      StandIn(options, (*server)->port(), server_options.core.router_incarnation);
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(INFO) << "signal " << signal << ": shutting down";
  if (standing != nullptr) standing->Stop();  // no worker looks for it from here on
  (*server)->Shutdown();
  return 0;
}

}  // namespace
}  // namespace sluice::router

int main(int argc, char** argv) {
  sluice::router::Options options;
  const std::unique_ptr<CLI::App> parser = sluice::router::MakeParser(options);
  if (const std::optional<std::string> text = sluice::config::TextBefore(*parser, argc, argv)) {
    return std::fputs(text->c_str(), stdout) < 0;
  }
  try {
    parser->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return parser->exit(error);  // --help
    std::fprintf(stderr, "sluice_router: %s (see sluice_router --help)\n", error.what());
    return 2;
  }
  if (const std::optional<std::string> text = sluice::config::TextInstead(*parser)) {
    return std::fputs(text->c_str(), stdout) < 0;
  }
  sluice::router::StartLogging(options.log_level);
  return sluice::router::Serve(options);
}
