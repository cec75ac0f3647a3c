// Where the answer of one client call goes; one implementation per transport.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/serving.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

class CallSink {
 public:
  virtual ~CallSink() = default;

  // Both run on the core's thread, so they only hand over and never wait; Send any number of times, then End once.
  // False from Send: the client takes no more (it reads too slowly). The call is cancelled and hears nothing more.
  // `responses` are what one step brought: an empty outbox takes them all, and until it is empty again only what comes
  // on top of them counts, so that a step's size is never the client's fault.
  virtual bool Send(std::vector<pb::GenerateResponse> responses) = 0;
  // OK: all of the answer was sent. retry_after: zero without advice.
  virtual void End(const absl::Status& status, absl::Duration retry_after) = 0;
};

}  // namespace sluice::router
