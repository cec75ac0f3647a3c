// The requests that live at a worker, as all roles have them: whose they are, their leases and deadlines, and what
// their streams are to be told. Pure: no threads, gRPC or clock.
//
// A request ends at once (EndNow), or first stops and ends when its blocks are free (EndLater, then Ended): somebody
// else may still read or write them. Promises: one end a request and nothing about it afterwards; no word to a stream
// that is over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/runner/commit.h"
#include "kvtransfer/lease_table.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

using StreamId = uint64_t;  // of a Work stream; never reused

// What a stream is to be sent, in order. `close` set: the stream ends with that status after the message.
struct Outgoing {
  StreamId stream = 0;
  v1::WorkerMessage message;
  std::optional<absl::Status> close;
};

// What a request's stream hears when it ends: an error, or nothing (it was told already, or nobody listens).
using LastWords = std::optional<v1::ErrorInfo>;

class RequestTable {
 public:
  struct Arrival {
    StreamId stream = 0;
    v1::RequestKey key;
    absl::Time received;
    absl::Time deadline = absl::InfiniteFuture();
    bool leased = true;  // ends when the router does not renew it
    bool logprobs = false;
  };

  explicit RequestTable(absl::Duration lease_term) : leases_(lease_term) {}

  // The id is the request's name in the engine and the name of its lease; never reused. REQUIRES: no live request of
  // that stream and key.
  uint64_t Add(Arrival arrival);

  // Takes an Add back: the request was refused. REQUIRES: it lives (as everything below).
  void Forget(uint64_t id);

  uint64_t Find(StreamId stream, const v1::RequestKey& key) const;  // 0: none that can be spoken of
  bool Has(uint64_t id) const { return requests_.count(id) != 0; }
  bool ending(uint64_t id) const { return requests_.at(id).ending; }
  const v1::RequestKey& key(uint64_t id) const { return requests_.at(id).arrival.key; }
  size_t size() const { return requests_.size(); }
  std::vector<uint64_t> All() const;
  std::vector<uint64_t> OfStream(StreamId stream) const;

  // ---- events of live requests ----
  v1::WorkerEvent* NewEvent(uint64_t id);
  v1::WorkerEvent* NewEvent(StreamId stream, const v1::RequestKey& key);

  // The log-probabilities of the prompt, if the step brought them: the request's next AddToken sends them along.
  void KeepPrompt(const engine::TokenOutput& output);

  // Consecutive tokens of one choice between two TakeOutgoing share an event.
  void AddToken(const engine::TokenOutput& output);

  // An entry of the request's timeline; `at` becomes the time since the request was received.
  void AddProgress(uint64_t id, absl::string_view name, absl::Time at, int64_t amount = 0);

  // The same for what comes often and matters to people only: it is sent with the request's next event, and replaces an
  // entry that was not sent yet. Messages of its own would queue before a token.
  void UpdateProgress(uint64_t id, absl::string_view name, absl::Time at, int64_t amount);

  // last: of all choices. cached_tokens: of the prompt, found in a prefix cache.
  void AddFinished(uint64_t id, int choice, engine::FinishReason reason, int cached_tokens, bool last);

  // ---- ends ----
  void EndNow(uint64_t id, const LastWords& words);

  // No timer ends it any more. Without words its key is free for another request at once.
  void EndLater(uint64_t id, LastWords words);

  // What EndLater announced has come.
  void Ended(uint64_t id);

  // The last words, if it has any, do not wait for the end.
  void SayNow(uint64_t id);

  // Nobody listens any more: last words, if it has any, are dropped.
  void Silence(uint64_t id);

  // ---- time ----
  void Renew(StreamId stream, uint64_t id, absl::Time received);
  std::vector<uint64_t> TakeExpired(absl::Time now);  // their lease is over; they end now
  std::vector<uint64_t> TakeOverdue(absl::Time now);  // their deadline has passed
  absl::Time NextTimer() const;
  absl::Duration lease_term() const { return leases_.term(); }

  // ---- streams ----
  Outgoing& PendingOf(StreamId stream);
  void DropPending(StreamId stream) { pending_.erase(stream); }
  std::vector<Outgoing> TakeOutgoing();

 private:
  struct Request {
    Arrival arrival;
    bool ending = false;
    LastWords words;
    v1::Tokens* tokens = nullptr;             // in the pending message, until it is taken
    std::vector<engine::Sampled> prompt;      // log-probabilities of it, for the next tokens
    std::optional<v1::TimelineEvent> update;  // waits for the next event
  };
  using KeyOfStream = std::tuple<StreamId, std::string, int32_t>;

  const Arrival& arrival(uint64_t id) const { return requests_.at(id).arrival; }
  static KeyOfStream KeyOf(const Arrival& a) { return {a.stream, a.key.request_id(), a.key.attempt()}; }
  void StopTimers(uint64_t id);
  void FreeKey(uint64_t id);
  v1::TimelineEvent Entry(uint64_t id, absl::string_view name, absl::Time at, int64_t amount) const;

  kvtransfer::LeaseTable leases_;  // also draws the ids
  std::unordered_map<uint64_t, Request> requests_;
  std::map<KeyOfStream, uint64_t> by_key_;
  std::map<StreamId, std::set<uint64_t>> by_stream_;
  std::set<std::pair<absl::Time, uint64_t>> deadlines_;  // of the requests that have one
  std::map<StreamId, Outgoing> pending_;
};

}  // namespace sluice::worker
