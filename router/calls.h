// The client calls of a router, whatever they came through: from a request to the core, and from the core's tokens to
// the responses of a sink.
//
// Promises: a call that was started ends exactly once in the core; its sink hears End exactly once unless the client
// cancelled or refused more, and then nothing more. Validation and tokenization run on the caller's thread, the text
// side on the core's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/answer_stream.h"
#include "router/call_sink.h"
#include "router/events.h"
#include "router/request_metrics.h"
#include "router/validate.h"

namespace sluice::router {

class Calls {
 public:
  // `model` must outlive the object, and `post` must be callable as long as it lives.
  Calls(const ServedModel* model, std::function<void(Event)> post);

  // A new call. It does nothing until Start.
  uint64_t Add(std::shared_ptr<CallSink> sink);

  // Checks the request and hands it to the core. Not OK: the call is over, and its sink hears nothing.
  absl::Status Start(uint64_t call, const pb::GenerateRequest& request, absl::Time received,
                     absl::Duration time_left = absl::InfiniteDuration());

  // The client does not want the answer any more; its sink hears nothing more. At any time, any number of times.
  void Cancel(uint64_t call, const absl::Status& why);

  uint64_t Draw();  // a fresh random number
  const ServedModel& model() const { return *model_; }

  // From the core's thread.
  void Deliver(const ClientTokens& event);
  void Deliver(const ClientEnd& event);
  void SetTokenCapacity(int tokens) { capacity_ = tokens; }
  RequestMetrics metrics() const;

  // A request was refused before it became a call. Any thread.
  void Refused(const absl::Status& why);

 private:
  struct Call {
    std::shared_ptr<CallSink> sink;      // guarded by mutex_; empty once cancelled
    bool started = false;                // guarded by mutex_; the core owes a ClientEnd
    std::optional<AnswerStream> answer;  // the core's thread alone, once started
  };

  std::shared_ptr<Call> Find(uint64_t call, std::shared_ptr<CallSink>& sink);

  const ServedModel* const model_;
  const std::function<void(Event)> post_;
  std::atomic<int> capacity_ = 0;
  RequestMetrics metrics_;                                                  // the core's thread alone
  std::array<std::atomic<uint64_t>, RequestMetrics::kCodes> refused_ = {};  // by absl::StatusCode

  absl::Mutex mutex_;
  std::mt19937_64 rng_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::router
