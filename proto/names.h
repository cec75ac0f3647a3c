// What people read of the enums on the wire: in logs, tables, labels of metrics and JSON.
#pragma once

#include "proto/serving.pb.h"

namespace sluice {

inline const char* RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_PREFILL:
      return "prefill";
    case v1::ROLE_DECODE:
      return "decode";
    case v1::ROLE_BOTH:
      return "both";
    default:
      return "unknown";
  }
}

inline const char* WorkerStateName(v1::WorkerState state) {
  switch (state) {
    case v1::WORKER_STATE_ACTIVE:
      return "active";
    case v1::WORKER_STATE_SUSPECT:
      return "suspect";
    case v1::WORKER_STATE_DRAINING:
      return "draining";
    case v1::WORKER_STATE_GONE:
      return "gone";
    default:
      return "unknown";
  }
}

}  // namespace sluice
