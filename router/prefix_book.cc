#include "router/prefix_book.h"

namespace sluice::router {

bool PrefixBook::Apply(uint64_t worker, const pb::PrefixEvents& events) {
  ++version_;
  return index_.Apply(worker, events);
}

void PrefixBook::Forget(uint64_t worker) {
  ++version_;
  index_.Forget(worker);
  promises_.erase(promises_.lower_bound({worker, AttemptKey()}), promises_.lower_bound({worker + 1, AttemptKey()}));
}

void PrefixBook::Look(const Request& request, int leg) {
  const Ticket ticket{request.call(), leg};
  const size_t tokens = size_t(request.demand(leg).prompt_tokens);
  if (recent_.ticket == ticket && recent_.tokens == tokens) return;
  recent_ = {.ticket = ticket, .tokens = tokens, .names = {}, .matches = {}};
}

// Workers name a model's blocks without its hash: two models never meet in a cluster (engine/engine.h).
const PrefixBook::Names& PrefixBook::NamesIn(const Request& request, int leg, const Space& space) {
  Look(request, leg);
  Names& names = recent_.names[space];
  if (names == nullptr) {
    const engine::BlockHash root =
        engine::RootHash("", request.sequence().adapter(), space.first, request.sequence().cache_salt());
    std::vector<int32_t> tokens = request.TokensOf(leg);
    if (!tokens.empty()) tokens.pop_back();  // the last one is always computed
    names = std::make_shared<const std::vector<engine::BlockHash>>(
        engine::HashBlocks(root, tokens, std::max(1, space.second)));
  }
  return names;
}

int PrefixBook::Cached(const Request& request, int leg, uint64_t worker, const pb::Fingerprint& its) {
  if (index_.entries() == 0 || request.sequence().sampling().has_prompt_logprobs()) return 0;  // those read no cache
  Look(request, leg);
  if (recent_.version == version_ && recent_.last_space != nullptr && recent_.last_space->first == its.numerics() &&
      recent_.last_space->second == its.block_size()) {
    const auto hit = recent_.last_matches->find(worker);
    return hit == recent_.last_matches->end() ? 0 : hit->second * its.block_size();
  }
  const Space space{its.numerics(), its.block_size()};
  const Names& names = NamesIn(request, leg, space);
  if (recent_.version != version_) {
    recent_.matches.clear();
    recent_.last_space = nullptr;
    recent_.version = version_;
  }
  auto found = recent_.matches.find(space);
  if (found == recent_.matches.end()) found = recent_.matches.emplace(space, index_.Match(*names)).first;
  recent_.last_space = &found->first;
  recent_.last_matches = &found->second;
  const auto hit = found->second.find(worker);
  return hit == found->second.end() ? 0 : hit->second * space.second;
}

void PrefixBook::Dispatched(const Request& request, int leg, uint64_t worker, const pb::Fingerprint& its) {
  const Names names = NamesIn(request, leg, {its.numerics(), its.block_size()});
  if (names->empty()) return;
  ++version_;
  index_.Promise(worker, *names);
  promises_[{worker, request.attempt(leg)}] = names;
}

void PrefixBook::Ended(uint64_t worker, const AttemptKey& attempt) {
  const auto promise = promises_.find({worker, attempt});
  if (promise == promises_.end()) return;
  ++version_;
  index_.Release(worker, *promise->second);
  promises_.erase(promise);
}

}  // namespace sluice::router
