// A W3C trace context that comes with a call instead of in its request. It is passed on, not understood; what could not
// be passed on as it is, because it is too long or not printable, is left out, since a trace is never worth an answer.
#pragma once

#include <string>
#include <string_view>

#include "proto/serving.pb.h"
#include "router/http/head.h"
#include "router/validate.h"

namespace sluice::router {

// Of a call's metadata, a multimap of string views of any kind, unless the request has a trace of its own. One
// traceparent counts; tracestate may come in parts, as W3C has it.
template <typename Metadata>
void TakeTrace(const Metadata& metadata, pb::GenerateRequest& request) {
  if (!request.trace().traceparent().empty() || metadata.count("traceparent") != 1) return;
  const auto& parent = metadata.find("traceparent")->second;
  const std::string_view traceparent = FitForTrace({parent.data(), parent.size()}, kMaxTraceparentBytes);
  if (traceparent.empty()) return;
  std::string state;
  const auto [begin, end] = metadata.equal_range("tracestate");
  for (auto it = begin; it != end; ++it) {
    if (!state.empty()) state += ',';
    state.append(it->second.data(), it->second.size());
  }
  pb::TraceContext& trace = *request.mutable_trace();
  trace.set_traceparent(std::string(traceparent));
  trace.set_tracestate(std::string(FitForTrace(state, kMaxTracestateBytes)));
}

}  // namespace sluice::router
