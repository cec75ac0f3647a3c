#include "router/cluster_resources.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "router/http/head.h"
#include "router/metrics.h"

namespace sluice::router {
namespace {

template <typename Answer>
absl::StatusOr<Answer> AskCore(EventLoop& loop, std::function<Answer(const RouterCore&)> question) {
  struct Pending {
    absl::Notification came;
    Answer answer;
  };
  const auto pending = std::make_shared<Pending>();
  loop.Ask([pending, question = std::move(question)](const RouterCore& core) {
    pending->answer = question(core);
    pending->came.Notify();
  });
  if (!pending->came.WaitForNotificationWithTimeout(absl::Seconds(2))) {
    return absl::UnavailableError("the router is stuck");
  }
  return std::move(pending->answer);
}

absl::StatusOr<std::string> Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
    return absl::InternalError("the answer can't be printed");  // text that is not UTF-8
  }
  return json;
}

// The value of a parameter; empty where it is absent.
std::string Parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    const size_t equals = std::min(one.find('='), one.size());
    if (one.substr(0, equals) == name) return DecodePath(one.substr(std::min(equals + 1, one.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return "";
}

absl::StatusOr<std::string> Metrics(EventLoop& loop, const Calls& calls) {
  absl::StatusOr<MetricsInput> input = AskCore<MetricsInput>(loop, [&calls](const RouterCore& core) {
    return MetricsInput{core.State(), core.counters(), calls.metrics()};
  });
  if (!input.ok()) return input.status();
  return MetricsText(*input);
}

absl::StatusOr<std::string> State(EventLoop& loop) {
  const auto state = AskCore<pb::ClusterState>(loop, [](const RouterCore& core) { return core.State(); });
  return state.ok() ? Json(*state) : state.status();
}

// limit=N; timeline=0 leaves the timelines out; id=ID: that request alone.
absl::StatusOr<std::string> Requests(EventLoop& loop, std::string_view query) {
  const std::string id = Parameter(query, "id");
  const std::string wanted = Parameter(query, "limit");
  int limit = id.empty() ? kRequestsShown : kMaxRequestsShown;
  if (!wanted.empty() && (!absl::SimpleAtoi(wanted, &limit) || limit < 1 || limit > kMaxRequestsShown)) {
    return absl::InvalidArgumentError(absl::StrCat("limit: must be an integer from 1 to ", kMaxRequestsShown));
  }
  auto list =
      AskCore<pb::RequestList>(loop, [limit](const RouterCore& core) { return core.Requests(limit, MonotonicNow()); });
  if (!list.ok()) return list.status();
  if (!id.empty()) {
    auto& requests = *list->mutable_requests();
    requests.erase(
        std::remove_if(requests.begin(), requests.end(), [&](const auto& r) { return r.request_id() != id; }),
        requests.end());
  }
  if (Parameter(query, "timeline") == "0") {
    for (pb::RequestSummary& request : *list->mutable_requests()) request.mutable_timing()->clear_timeline();
  }
  return Json(*list);
}

}  // namespace

std::map<std::string, HttpResource> ClusterResources(EventLoop* loop, const Calls* calls) {
  std::map<std::string, HttpResource> resources;
  resources["/metrics"] = {
      .type = kMetricsType, .guarded = false, .body = [=](std::string_view) { return Metrics(*loop, *calls); }};
  resources["/cluster/state"] = {.type = "application/json", .body = [=](std::string_view) { return State(*loop); }};
  resources["/cluster/requests"] = {.type = "application/json",
                                    .body = [=](std::string_view query) { return Requests(*loop, query); }};
  return resources;
}

}  // namespace sluice::router
