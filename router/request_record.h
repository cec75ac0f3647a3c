// What all attempts of a request have in common.
#pragma once

#include <string>
#include <utility>

#include "router/answer.h"
#include "router/events.h"
#include "router/timeline.h"

namespace sluice::router {

struct RequestRecord {
  RequestRecord(Submit asked, std::string name, int headroom)
      : submit(std::move(asked)),
        wire_id(std::move(name)),
        headroom_tokens(headroom),
        answer(submit.sequence),
        timeline(submit.received) {}
  RequestRecord(const RequestRecord&) = delete;  // parts of it refer to each other

  const Submit submit;
  const std::string wire_id;
  const int headroom_tokens;  // of an answer, for which blocks are promised in advance; 0: all of it
  Answer answer;
  Timeline timeline;
  int cached_tokens = 0;
  int64_t transfer_bytes = 0;  // as committed
  double exposed_transfer_ms = 0;
};

}  // namespace sluice::router
