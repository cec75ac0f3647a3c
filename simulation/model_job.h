// A request at a simulated worker: a lease, or a prompt to compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/worker.pb.h"
#include "simulation/answer_model.h"
#include "simulation/prefix_cache_model.h"

namespace sluice::simulation {

struct ModelJob {
  enum Kind {
    kPrompt,  // at a prefill worker
    kLease,   // at a decode worker or one of role both
  };
  enum State {
    kAwaiting,   // the KV of a prefill worker
    kComputing,  // the prompt
    kHandingOver,
    kDecoding,
    kLeaving,  // over, but its blocks are still in use
  };
  struct Choice {
    int number = 0;
    AnswerModel answer;
    bool over = false;
  };

  uint64_t id = 0;  // of a lease: the lease's
  Kind kind = kLease;
  State state = kComputing;
  uint64_t stream = 0;
  pb::RequestKey key;
  int tokens = 0;  // to compute
  int computed = 0;
  int cached = 0;         // of them, at the start
  int prompt_tokens = 0;  // the user's
  int max_tokens = 0;     // of an answer
  bool prompt_logprobs = false;
  bool logprobs = false;
  int64_t blocks = 0;  // promised
  std::vector<Choice> choices;
  std::vector<BlockHash> names;
  bool started = false;        // its prompt is being computed
  bool says_decoding = false;  // with its first step

  uint64_t peer = 0;     // the other worker; 0: none
  uint64_t lease = 0;    // at the peer
  bool opened = false;   // the transfer
  int sent = 0;          // tokens whose KV has left, or is there already
  int saved_tokens = 0;  // of a prompt that came as KV: not computed by the peer

  absl::Time received;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time expires = absl::InfiniteFuture();
  bool says = false;  // of kLeaving: that it has ended
  pb::ErrorInfo words;

  bool runs() const { return state == kComputing || state == kDecoding; }
  int left() const { return tokens - computed; }
  int rows() const {
    return int(std::count_if(choices.begin(), choices.end(), [](const Choice& c) { return !c.over; }));
  }
  bool all_over() const { return rows() == 0; }
};

}  // namespace sluice::simulation
