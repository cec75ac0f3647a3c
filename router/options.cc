#include "router/options.h"

#include <cmath>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "config/config_file.h"

namespace sluice::router {
namespace {

void AddWeight(const std::string& entry, std::vector<std::pair<std::string, double>>& weights) {
  const size_t at = entry.rfind('=');
  double weight = 0;
  if (at == std::string::npos || !absl::SimpleAtod(entry.substr(at + 1), &weight) || !(weight > 0) ||
      !std::isfinite(weight)) {
    throw CLI::ValidationError("--tenant-weight", "\"" + entry + "\" is not NAME=WEIGHT with a weight above 0");
  }
  weights.emplace_back(entry.substr(0, at), weight);
}

discovery::RegistryAddress ReadRegistry(const std::string& text) {
  absl::StatusOr<discovery::RegistryAddress> registry = discovery::ParseRegistry(text);
  if (!registry.ok()) throw CLI::ValidationError("--registry", std::string(registry.status().message()));
  return *std::move(registry);
}

}  // namespace

std::unique_ptr<CLI::App> MakeParser(Options& options) {
  auto app = std::make_unique<CLI::App>(
      "The router of a Sluice cluster: takes requests over gRPC and HTTP, queues them, and lets workers compute "
      "them.\n\n"
      "It reads the model file for its vocabulary and its limits only; workers of the same model announce themselves:\n"
      "  sluice_router --model model.gguf --grpc-port 50051\n"
      "  sluice_decode --model model.gguf --role both --router 127.0.0.1:50051\n"
      "  sluice generate --router 127.0.0.1:50051 \"Tell me about rain.\"\n\n"
      "When it is ready it prints one line: sluice_router ready: grpc=HOST:PORT http=HOST:PORT pid=N model=\"NAME\".\n"
      "SIGTERM ends running streams with UNAVAILABLE and exits with 0 within 2 s.",
      "sluice_router");
  app->add_option("--model", options.model, "Model file (GGUF); workers must serve the same one")->required();
  app->add_option("--host", options.host, "Address to listen on; 0.0.0.0 for all")->capture_default_str();
  app->add_option("--grpc-port", options.grpc_port, "Port of the gRPC API; 0 takes a free one (see the ready line)")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--http-host", options.http_host, "Address of the HTTP API (OpenAI's); default: --host");
  app->add_option("--http-port", options.http_port, "Port of the HTTP API; 0 takes a free one, -1 turns it off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  app->add_option("--http-tls-cert", options.http_tls_cert,
                  "PEM file with the certificate chain of the HTTP API, which then speaks HTTPS");
  app->add_option("--http-tls-key", options.http_tls_key, "PEM file with the key of that certificate");
  app->add_option("--api-keys", options.api_keys,
                  "File with the keys that clients must show (Authorization: Bearer KEY), a line each: KEY or KEY "
                  "TENANT. Without it everybody may ask");
  app->add_option("--cors-origin", options.cors_origins,
                  "Origin whose pages may use the HTTP API from a browser, such as https://app.example; * is any; may "
                  "be repeated")
      ->allow_extra_args(false);
  app->add_option("--chat-template", options.chat_template,
                  "Jinja file, or tokenizer_config.json, that turns conversations into prompts; default: the one in "
                  "the model file");
  app->add_option(
      "--served-model-name", options.served_model_name,
      "What answers call the model; default: the name in its file. Requests may use either, and the file's");
  app->add_option("--queue-limit", options.queue_limit,
                  "Requests that may wait; more are refused with RESOURCE_EXHAUSTED")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app->add_option("--tenant-queue-limit", options.tenant_queue_limit,
                  "Of one tenant (the request's `tenant`); 0: no limit of its own")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app->add_option_function<std::vector<std::string>>(
         "--tenant-weight",
         [&options](const std::vector<std::string>& given) {
           for (const std::string& entry : given) AddWeight(entry, options.tenant_weights);
         },
         "NAME=WEIGHT, for each tenant whose share is not 1: while several wait, each gets tokens by its weight")
      ->allow_extra_args(false)
      ->type_name("NAME=WEIGHT");
  app->add_option("--policy", options.policy,
                  "How workers are chosen: slo (predicted times, prefixes included), prefix (longest prefix hit), "
                  "least-loaded (slo without prefixes), round-robin")
      ->check(CLI::IsMember({"slo", "prefix", "least-loaded", "round-robin"}))
      ->capture_default_str();
  app->add_option("--local-prefill-tokens", options.local_prefill_tokens,
                  "A decode worker may compute a prompt itself if no more than so many of its tokens are not cached "
                  "there and that is predicted to be better; 0: never")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app->add_flag("--fallback-both,!--no-fallback-both", options.fallback_both,
                "Where no prefill worker is alive decode workers compute prompts, too; otherwise requests are refused")
      ->default_str(options.fallback_both ? "true" : "false");
  app->add_option("--ttft-slo-ms", options.ttft_slo_ms,
                  "A request whose first token is predicted to come later is refused at once, with RESOURCE_EXHAUSTED; "
                  "0: no limit but the request's own")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app->add_option("--tpot-slo-ms", options.tpot_slo_ms,
                  "Workers that are predicted to keep this time per output token come first; 0: no limit but the "
                  "request's own")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app->add_option("--prefix-entries", options.prefix_entries,
                  "Blocks of prefixes that the router remembers of all workers together, some 50 bytes each")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app->add_option(
         "--max-moves", options.max_moves,
         "How often in a row, without a further token, a request whose worker fails goes on elsewhere; 0: it ends "
         "with the error")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app->add_option("--failover-wait-ms", options.failover_wait_ms,
                  "How long such a request waits where no worker is alive to go on with it; then UNAVAILABLE")
      ->check(CLI::Range(0, 3600000))
      ->capture_default_str();
  app->add_option(
         "--headroom-tokens", options.headroom_tokens,
         "Tokens of an answer for which a worker promises KV blocks before it begins; 0: all of max_tokens, so "
         "that nobody is ever preempted. With less, more requests run at once; one that then lacks blocks is "
         "computed again, which changes its time and not its tokens")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app->add_option("--lease-ms", options.lease_ms,
                  "A worker without a heartbeat for so long is given up, and its requests fail with UNAVAILABLE")
      ->check(CLI::Range(100, 3600000))
      ->capture_default_str();
  app->add_option("--heartbeat-ms", options.heartbeat_ms,
                  "How often workers report; after three misses a worker gets no new work")
      ->check(CLI::Range(10, 600000))
      ->capture_default_str();
  app->add_option("--cluster-key", options.cluster_key,
                  "File with a secret that the router and all workers share (openssl rand -hex 32): workers without it "
                  "are refused. Without one every worker that announces itself belongs");
  app->add_option(
      "--tls", options.tls,
      "Folder with ca.pem, cert.pem and key.pem: the streams to the workers are encrypted, and both ends show "
      "a certificate of that authority, made out to sluice.cluster");
  app->add_option("--log-level", options.log_level, "debug shows each placement with its numbers; logs go to stderr")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app->add_option_function<std::string>(
         "--registry", [&options](const std::string& text) { options.registry = ReadRegistry(text); },
         "Where workers find this router: embedded (the default: they name it with --router) or etcd, where every "
         "worker with the same flag finds it, and any number of routers beside it")
      ->type_name("etcd://HOST:PORT[,HOST:PORT...][/PREFIX]");
  app->add_option("--advertise", options.advertise, "With --registry: the host that workers dial; default: --host")
      ->type_name("HOST");
  config::AddConfigOptions(*app, {"common", "router"});
  return app;
}

}  // namespace sluice::router
