// What each worker has of a request's prompt: the prompt's block names under each arithmetic, matched against the
// index, and the promises that go with a dispatch until its attempt ends. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/prefix_index.h"
#include "router/queue.h"
#include "router/request.h"

namespace sluice::router {

class PrefixBook {
 public:
  explicit PrefixBook(size_t limit) : index_(limit) {}

  // As PrefixIndex.
  bool Apply(uint64_t worker, const pb::PrefixEvents& events);
  void Forget(uint64_t worker);

  // Tokens of the leg's prompt that the worker has or is about to have.
  int Cached(const Request& request, int leg, uint64_t worker, const pb::Fingerprint& its);

  // The worker computes the leg's prompt in this attempt, and has it until the attempt ends there; from then on its own
  // events tell.
  void Dispatched(const Request& request, int leg, uint64_t worker, const pb::Fingerprint& its);
  void Ended(uint64_t worker, const AttemptKey& attempt);  // no-op for what is not here

  const PrefixIndex& index() const { return index_; }
  size_t promises() const { return promises_.size(); }

 private:
  using Names = std::shared_ptr<const std::vector<engine::BlockHash>>;
  using Space = std::pair<std::string, int>;  // numerics, block size

  // Of the request that was asked about last: the queue's head is asked about again and again.
  struct Recent {
    Ticket ticket;
    size_t tokens = 0;
    std::map<Space, Names> names;
    std::map<Space, std::map<uint64_t, int>> matches;
    uint64_t version = 0;  // of the index, for `matches`
    // Workers of one kind come one after the other.
    const Space* last_space = nullptr;
    const std::map<uint64_t, int>* last_matches = nullptr;
  };

  void Look(const Request& request, int leg);
  const Names& NamesIn(const Request& request, int leg, const Space& space);

  PrefixIndex index_;
  uint64_t version_ = 1;
  Recent recent_;
  std::map<std::pair<uint64_t, AttemptKey>, Names> promises_;
};

}  // namespace sluice::router
