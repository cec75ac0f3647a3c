#include "router/http/api.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "router/http/chat_request.h"
#include "router/http/completion_request.h"
#include "router/http/embedded.h"
#include "router/http/error.h"
#include "router/http/info_bodies.h"
#include "router/prompt_tokens.h"

namespace sluice::router {
namespace {

using Outcome = std::variant<HttpReply, ApiRequest>;

HttpReply Error(int code, const std::string& message, HttpFields fields = {}) {
  return {code, ErrorBody(code, message), "application/json", std::move(fields)};
}

HttpReply Body(absl::StatusOr<std::string> body) {
  return body.ok() ? HttpReply{200, *std::move(body)} : ErrorReply(body.status());
}

// ---- who may ----

// The tenant of the message's key; not OK without one.
absl::StatusOr<std::string> TenantOf(const HttpShared& shared, const HttpMessage& message) {
  if (shared.options.keys.empty()) return "";
  std::optional<std::string> tenant = shared.options.keys.Tenant(message.header("authorization"));
  if (tenant.has_value()) return *std::move(tenant);
  return absl::UnauthenticatedError("the API key is missing or wrong; send it as \"Authorization: Bearer KEY\"");
}

// ---- small answers ----

HttpReply AnswerHealth(const HttpShared& shared, Route route) {
  if (shared.options.comes_forward && !shared.options.comes_forward()) {
    return ErrorReply(absl::UnavailableError("the router is stuck"));
  }
  if (route == Route::kLive) return {200, "{\"status\":\"live\"}"};
  if (shared.ready && !shared.draining) return {200, "{\"status\":\"ready\"}"};
  return ErrorReply(absl::UnavailableError("no worker is ready"));
}

HttpReply AnswerTokenize(const HttpShared& shared, std::string_view body) {
  const absl::StatusOr<TokenizeCall> call = ParseTokenize(body);
  if (!call.ok()) return ErrorReply(call.status());
  const absl::StatusOr<pb::TokenizeResponse> response = Tokenize(call->request, shared.calls->model(), absl::Now());
  return response.ok() ? HttpReply{200, TokenizeBody(*call, *response)} : ErrorReply(response.status());
}

HttpReply AnswerDetokenize(const HttpShared& shared, std::string_view body) {
  const absl::StatusOr<pb::DetokenizeRequest> call = ParseDetokenize(body);
  if (!call.ok()) return ErrorReply(call.status());
  const absl::StatusOr<pb::DetokenizeResponse> response = Detokenize(*call, shared.calls->model());
  return response.ok() ? HttpReply{200, DetokenizeBody(*response)} : ErrorReply(response.status());
}

// ---- requests that are computed ----

absl::Status TakeNumber(const HttpMessage& message, const char* header, bool given,
                        const std::function<void(int32_t)>& set) {
  const std::string_view text = message.header(header);
  if (text.empty() || given) return absl::OkStatus();  // the body's own field counts
  int32_t value = 0;
  if (!absl::SimpleAtoi(std::string(text), &value))
    return absl::InvalidArgumentError(absl::StrCat(header, ": must be an integer"));
  set(value);
  return absl::OkStatus();
}

// What headers say of a request, for clients that can't add fields to its body.
absl::Status TakeHeaders(const HttpMessage& message, ApiRequest& parsed) {
  pb::GenerateRequest& request = parsed.request;
  request.set_request_id(message.request_id);
  const absl::Status taken[] = {
      TakeNumber(message, "x-sluice-priority", request.priority() != 0, [&](int32_t v) { request.set_priority(v); }),
      TakeNumber(message, "x-sluice-timeout-ms", request.has_timeout_ms(),
                 [&](int32_t v) { request.set_timeout_ms(v); }),
      TakeNumber(message, "x-sluice-ttft-slo-ms", request.has_ttft_slo_ms(),
                 [&](int32_t v) { request.set_ttft_slo_ms(v); }),
      TakeNumber(message, "x-sluice-tpot-slo-ms", request.has_tpot_slo_ms(),
                 [&](int32_t v) { request.set_tpot_slo_ms(v); }),
      TakeNumber(message, "x-sluice-timing", parsed.timing, [&](int32_t v) { parsed.timing = v != 0; }),
  };
  for (const absl::Status& status : taken) {
    if (!status.ok()) return status;
  }
  request.set_tenant(std::string(message.header("x-sluice-tenant")));
  if (const auto parent = FitForTrace(message.header("traceparent"), kMaxTraceparentBytes); !parent.empty()) {
    const auto state = FitForTrace(message.header("tracestate"), kMaxTracestateBytes);
    request.mutable_trace()->set_traceparent(std::string(parent));
    request.mutable_trace()->set_tracestate(std::string(state));
  }
  return absl::OkStatus();
}

HttpReply Refuse(const HttpShared& shared, const absl::Status& why) {
  shared.calls->Refused(why);
  return ErrorReply(why);
}

Outcome HandleRequest(const HttpShared& shared, Route route, const HttpMessage& message, const std::string& tenant) {
  absl::StatusOr<ApiRequest> parsed = route == Route::kChat ? ParseChat(message.body) : ParseCompletion(message.body);
  if (!parsed.ok()) return Refuse(shared, parsed.status());
  if (absl::Status headers = TakeHeaders(message, *parsed); !headers.ok()) return Refuse(shared, headers);
  if (!tenant.empty()) parsed->request.set_tenant(tenant);  // a key's tenant is not the client's to choose
  return *std::move(parsed);
}

// ---- messages that no handler sees ----

HttpReply Preflight(const HttpMessage& message) {
  const std::string_view wanted = message.header("access-control-request-headers");
  HttpReply reply{204, "", "text/plain", {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"}}};
  if (!FitForTrace(wanted, 1024).empty()) {
    reply.fields.emplace_back("Access-Control-Allow-Headers", std::string(wanted));
  }
  reply.fields.emplace_back("Access-Control-Max-Age", "86400");
  return reply;
}

// Nothing: the message may be handled.
std::optional<HttpReply> Refusal(const HttpMessage& message, bool post) {
  const bool get = message.method == "GET" || message.method == "HEAD";
  if (post ? message.method != "POST" : !get) {
    const std::string allowed = post ? "POST" : "GET, HEAD";
    return Error(405, absl::StrCat("this path takes ", allowed, " only"), {{"Allow", allowed}});
  }
  const std::string_view encoding = message.header("content-encoding");
  if (post && !encoding.empty() && !absl::EqualsIgnoreCase(std::string(encoding), "identity")) {
    return Error(415, "the body must not be compressed");
  }
  return std::nullopt;
}

Outcome HandleRoute(const HttpShared& shared, const HttpMessage& message, const RouteInfo& info,
                    const std::string& path) {
  const ServedModel& model = shared.calls->model();
  absl::StatusOr<std::string> tenant = info.guarded ? TenantOf(shared, message) : "";
  if (!tenant.ok()) return ErrorReply(tenant.status());
  switch (info.route) {
    case Route::kCompletions:
    case Route::kChat:
      return HandleRequest(shared, info.route, message, *tenant);
    case Route::kTokenize:
      return AnswerTokenize(shared, message.body);
    case Route::kDetokenize:
      return AnswerDetokenize(shared, message.body);
    case Route::kModels:
      return HttpReply{200, ModelsBody(model, shared.started)};
    case Route::kModel:
      return Body(ModelBody(model, DecodePath(path.substr(std::string_view(info.path).size())), shared.started));
    case Route::kLive:
    case Route::kReady:
      return AnswerHealth(shared, info.route);
    case Route::kOpenApi:
      return HttpReply{200, std::string(embedded::kOpenApi)};
    case Route::kVersion:
      return HttpReply{200, VersionBody(shared.options.version)};
  }
  return ErrorReply(absl::InternalError("an unknown route"));
}

HttpReply HandleResource(const HttpShared& shared, const HttpMessage& message, const HttpResource& resource) {
  if (std::optional<HttpReply> refusal = Refusal(message, false)) return *std::move(refusal);
  if (resource.guarded) {
    if (absl::StatusOr<std::string> tenant = TenantOf(shared, message); !tenant.ok())
      return ErrorReply(tenant.status());
  }
  absl::StatusOr<std::string> body = resource.body(QueryOf(message.target));
  return body.ok() ? HttpReply{200, *std::move(body), resource.type, resource.fields} : ErrorReply(body.status());
}

HttpReply NoSuchPath(const HttpOptions& options) {
  std::string names = RouteNames();
  for (const auto& [path, resource] : options.resources) absl::StrAppend(&names, ", ", path);
  return Error(404, absl::StrCat("no such path; there are ", names));
}

}  // namespace

HttpReply ErrorReply(const absl::Status& status, absl::Duration retry_after) {
  HttpReply reply = {HttpCode(status), ErrorBody(status)};
  if (reply.code == 401) reply.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (reply.code == 429 || retry_after > absl::ZeroDuration()) {
    reply.fields.emplace_back("Retry-After", RetryAfterSeconds(retry_after));
  }
  return reply;
}

absl::Status TakeRequestId(HttpMessage& message, uint64_t draw) {
  const std::string_view id = message.header("x-request-id");
  const bool given = IsRequestId(id);
  const char* kind = PathOf(message.target) == "/v1/chat/completions" ? "chatcmpl" : "cmpl";
  message.request_id = given ? std::string(id) : absl::StrFormat("%s-%016x", kind, draw);
  if (given || id.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("x-request-id: must have at most 256 characters, all of them printable ASCII");
}

HttpFields CorsFields(const HttpOptions& options, std::string_view origin) {
  if (origin.empty() || FitForTrace(origin, 256).empty()) return {};
  for (const std::string& allowed : options.cors_origins) {
    if (allowed != "*" && allowed != origin) continue;
    return {{"Access-Control-Allow-Origin", std::string(allowed == "*" ? "*" : origin)},
            {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
            {"Vary", "Origin"}};
  }
  return {};
}

std::variant<HttpReply, ApiRequest> Handle(const HttpShared& shared, const HttpMessage& message) {
  const std::string path(PathOf(message.target));
  const RouteInfo* info = FindRoute(path);
  const auto resource = shared.options.resources.find(path);
  if (info == nullptr && resource == shared.options.resources.end()) return NoSuchPath(shared.options);
  if (message.method == "OPTIONS") {
    if (!CorsFields(shared.options, message.header("origin")).empty()) return Preflight(message);
  }
  if (info == nullptr) return HandleResource(shared, message, resource->second);
  if (std::optional<HttpReply> refusal = Refusal(message, info->post)) return *std::move(refusal);
  return HandleRoute(shared, message, *info, path);
}

}  // namespace sluice::router
