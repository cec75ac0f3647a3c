// What a prefill and a decode worker say to each other about one lease. The bytes themselves are only time here; they
// have arrived when the Commit does.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/worker.pb.h"

namespace sluice::simulation {

namespace pb = ::sluice::v1;

struct KvMessage {
  enum Kind {
    kCommit,  // P to D: all pieces and the first tokens
    kCancel,  // P to D: the transfer is over
    kDone,    // D to P: so it is; without an error: the KV is here
  };
  struct First {
    int choice = 0;
    int32_t token = 0;
    bool finished = false;
  };

  Kind kind = kDone;
  uint64_t lease = 0;
  pb::ErrorInfo error;  // code 0: none
  std::vector<First> firsts;
  int computed_tokens = 0;
  int cached_tokens = 0;
  int64_t bytes = 0;
  bool bad = false;  // the pieces' checksums are wrong
};

inline pb::ErrorInfo MakeError(pb::ErrorReason reason, int code, const std::string& message) {
  pb::ErrorInfo error;
  error.set_reason(reason);
  error.set_code(code);
  error.set_message(message);
  return error;
}

}  // namespace sluice::simulation
