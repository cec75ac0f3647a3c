#include "engine/sequence_table.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/kv_layout.h"

namespace sluice::engine {

using kernels::BlocksFor;

SequenceTable::SequenceTable(const SequenceLimits& limits, const SchedulerLimits& scheduler, DrafterFactory new_drafter)
    : limits_(limits),
      scheduler_limits_(scheduler),
      new_drafter_(std::move(new_drafter)),
      kv_(limits.num_blocks, limits.block_size, limits.prefix_caching),
      scheduler_(scheduler, &kv_) {}

absl::Status SequenceTable::CheckShape(const EngineRequest& r) const {
  if (absl::Status status = Validate(r.sampling); !status.ok()) return status;
  const int64_t given = int64_t(r.tokens.size());
  if (given == 0) return absl::InvalidArgumentError("tokens is empty; a prompt needs at least one token");
  if (r.num_prompt_tokens < 1 || r.num_prompt_tokens > given) {
    return absl::InvalidArgumentError(absl::StrCat("num_prompt_tokens is ", r.num_prompt_tokens, "; it must be in [1, ",
                                                   given, "], the tokens given"));
  }
  for (int64_t i = 0; i < given; ++i) {
    if (r.tokens[i] < 0 || r.tokens[i] >= limits_.vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokens[", i, "] is ", r.tokens[i], "; the vocabulary has ", limits_.vocab, " tokens"));
    }
  }
  const int64_t total = int64_t{r.num_prompt_tokens} + r.sampling.max_tokens;
  if (total > limits_.max_context) {
    return absl::InvalidArgumentError(absl::StrCat("prompt (", r.num_prompt_tokens, " tokens) + sampling.max_tokens (",
                                                   r.sampling.max_tokens, ") exceed the context of ",
                                                   limits_.max_context, " tokens"));
  }
  if (given >= total) {
    return absl::InvalidArgumentError(absl::StrCat("tokens already hold ", given - r.num_prompt_tokens,
                                                   " generated tokens; sampling.max_tokens (", r.sampling.max_tokens,
                                                   ") leaves nothing to generate"));
  }
  if (r.n < 1 || r.n > scheduler_limits_.max_step_seqs) {
    return absl::InvalidArgumentError(absl::StrCat("n is ", r.n, "; it must be in [1, ",
                                                   scheduler_limits_.max_step_seqs, "], the sequences that run at once"));
  }
  if (r.n > 1 && given > r.num_prompt_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("n is ", r.n, " and tokens hold generated ones: a replay is of one choice"));
  }
  if (r.headroom_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("headroom_tokens is ", r.headroom_tokens));
  }
  if (r.park_after_first && r.awaiting_kv) {
    return absl::InvalidArgumentError("a request cannot both await its KV and park after its first token");
  }
  if (r.awaiting_kv && given + 1 >= total) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.max_tokens (", r.sampling.max_tokens,
                                                   ") leaves nothing to generate after the token that comes with "
                                                   "the KV"));
  }
  if (requests_.contains(r.id)) {
    return absl::InvalidArgumentError(absl::StrCat("a request with the id ", r.id, " is alive already"));
  }
  return absl::OkStatus();
}

// Choices share the full blocks of the prompt; each has the rest for itself.
absl::Status SequenceTable::CheckBlocks(const EngineRequest& r, int64_t* needed) const {
  const int given = int(r.tokens.size());
  const int whole = r.park_after_first ? given : r.num_prompt_tokens + r.sampling.max_tokens;
  const int blocks = BlocksFor(whole, limits_.block_size);
  if (blocks > kv_.total()) {
    return absl::FailedPreconditionError(absl::StrCat(r.park_after_first ? "the prompt (" : "prompt + max_tokens (",
                                                      whole, " tokens) need ", blocks, " KV blocks; the pool has ",
                                                      kv_.total(), " of ", limits_.block_size, " tokens each"));
  }
  const int promised = r.headroom_tokens > 0 ? std::min(whole, given + r.headroom_tokens) : whole;
  const int64_t one = BlocksFor(promised, limits_.block_size);
  *needed = one + (r.park_after_first ? 0 : (r.n - 1) * (one - given / limits_.block_size));
  // Who may wait takes turns with the others of its kind, so that each of its choices must fit alone.
  if (!r.may_wait && *needed > kv_.total()) {
    return absl::FailedPreconditionError(absl::StrCat("n: ", r.n, " choices of prompt + max_tokens (", promised,
                                                      " tokens) need ", *needed, " KV blocks together; the pool has ",
                                                      kv_.total(), " of ", limits_.block_size, " tokens each"));
  }
  if (!r.may_wait && *needed > unpromised_blocks()) {
    return absl::ResourceExhaustedError(absl::StrCat(*needed, " KV blocks are needed; ", unpromised_blocks(), " of ",
                                                     kv_.total(), " are free"));
  }
  return absl::OkStatus();
}

std::shared_ptr<Sequence> SequenceTable::NewSequence(EngineRequest& r, int needed) {
  auto s = std::make_shared<Sequence>();
  s->id = r.id;
  s->choice = r.choice;
  s->tokens = std::move(r.tokens);
  s->num_prompt_tokens = r.num_prompt_tokens;
  s->reserve_blocks = needed;
  s->root = RootHash(limits_.model_hash, r.adapter, limits_.numerics, r.cache_salt);
  s->reads_prefix_cache = r.prompt_logprobs < 0;
  for (int i = 0; i < r.n; ++i) {
    auto sample = std::make_shared<SampleState>(r.sampling, r.choice + i, s->tokens, r.num_prompt_tokens);
    (i == 0 ? s->sample : s->siblings.emplace_back()) = std::move(sample);
  }
  if (new_drafter_ && !r.park_after_first) s->drafter = new_drafter_();
  s->prompt_logprobs = r.prompt_logprobs;
  s->priority = r.priority;
  s->arrival = arrivals_++;
  s->park_after_first = r.park_after_first;
  s->awaiting_kv = r.awaiting_kv;
  return s;
}

absl::Status SequenceTable::Add(EngineRequest r) {
  int64_t needed = 0;
  if (absl::Status status = CheckShape(r); !status.ok()) return status;
  if (absl::Status status = CheckBlocks(r, &needed); !status.ok()) return status;
  const std::shared_ptr<Sequence> s = NewSequence(r, int(needed));
  if (s->awaiting_kv) {
    // Others outside write to these blocks from here on.
    if (!kv_.Admit(*s, int(s->tokens.size()), 0)) {
      return absl::ResourceExhaustedError(absl::StrCat("KV blocks of ", s->tokens.size(), " tokens are needed; ",
                                                       kv_.free(), " of ", kv_.total(), " are free"));
    }
    s->hit_tokens = s->computed;
  } else {
    scheduler_.AddWaiting(s);
  }
  requests_[r.id].live.push_back(s);
  return absl::OkStatus();
}

bool SequenceTable::Park(uint64_t id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return false;
  for (const auto& s : it->second.live) ParkSequence(*s);
  return true;
}

void SequenceTable::ParkSequence(Sequence& s) {
  s.awaiting_kv = false;
  s.parked = true;
  scheduler_.Remove(&s);
}

absl::Status SequenceTable::Activate(uint64_t id, std::span<const FirstToken> firsts) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return absl::NotFoundError(absl::StrCat("there is no request with the id ", id));
  const std::shared_ptr<Sequence> s = it->second.live.front();
  if (!s->awaiting_kv) return absl::FailedPreconditionError(absl::StrCat("request ", id, " does not await its KV"));
  if (firsts.empty()) return absl::InvalidArgumentError(absl::StrCat("request ", id, " has no first token"));
  std::vector<bool> seen(1 + s->siblings.size());
  for (const FirstToken& first : firsts) {
    const int index = first.choice - s->choice;
    if (index < 0 || index >= int(seen.size()) || seen[size_t(index)]) {
      return absl::InvalidArgumentError(absl::StrCat("a first token is of choice ", first.choice, "; there are ",
                                                     seen.size(), " from ", s->choice, " on, each once"));
    }
    seen[size_t(index)] = true;
    if (first.token < 0 || first.token >= limits_.vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("the first token is ", first.token, "; the vocabulary has ", limits_.vocab, " tokens"));
    }
  }
  s->awaiting_kv = false;
  s->computed = s->scheduled = int(s->tokens.size());
  kv_.StoreComputed(*s);
  const std::vector<std::shared_ptr<SampleState>> siblings = std::exchange(s->siblings, {});
  std::vector<std::shared_ptr<Sequence>> live;
  for (const FirstToken& first : firsts) {
    const int index = first.choice - s->choice;
    live.push_back(index == 0 ? s : NewSibling(*s, siblings[size_t(index) - 1]));
  }
  if (!seen[0]) Drop(*s);  // over with its first token, which others outlive
  for (size_t i = 0; i < live.size(); ++i) {
    live[i]->tokens.push_back(firsts[i].token);
    live[i]->sample->Append(firsts[i].token);
    scheduler_.AddRunning(live[i]);
  }
  it->second.live = std::move(live);
  return absl::OkStatus();
}

// Shares the KV that is computed. REQUIRES: the parent's tokens are those of both.
std::shared_ptr<Sequence> SequenceTable::NewSibling(const Sequence& parent, std::shared_ptr<SampleState> sample) {
  auto s = std::make_shared<Sequence>();
  s->id = parent.id;
  s->choice = sample->choice;
  s->tokens = parent.tokens;
  s->num_prompt_tokens = parent.num_prompt_tokens;
  s->reserve_blocks = BlocksFor(parent.num_prompt_tokens + sample->params.max_tokens, limits_.block_size);
  s->root = parent.root;
  s->hit_tokens = parent.hit_tokens;
  s->sample = std::move(sample);
  if (new_drafter_) s->drafter = new_drafter_();
  s->priority = parent.priority;
  s->arrival = parent.arrival;
  s->starved = parent.starved;
  if (!parent.blocks.empty()) {
    kv_.Share(parent, parent.num_prompt_tokens, *s);
    s->computed = s->scheduled = parent.num_prompt_tokens;
  }
  return s;
}

// The parent has no new token yet.
void SequenceTable::Fork(Sequence& parent, std::span<const int32_t> tokens) {
  const std::vector<std::shared_ptr<SampleState>> samples = std::exchange(parent.siblings, {});
  CHECK_EQ(samples.size(), tokens.size());
  parent.reserve_blocks = BlocksFor(parent.num_prompt_tokens + parent.sampling().max_tokens, limits_.block_size);
  Request& request = requests_.at(parent.id);
  for (size_t i = 0; i < samples.size(); ++i) {
    std::shared_ptr<Sequence> s = NewSibling(parent, samples[i]);
    s->tokens.push_back(tokens[i]);
    request.live.push_back(s);
    if (s->blocks.empty()) {
      scheduler_.AddWaiting(std::move(s));  // the parent's were taken away while it was sampled
    } else {
      scheduler_.AddRunning(std::move(s));
    }
  }
}

void SequenceTable::Drop(Sequence& s) {
  s.removed = true;
  scheduler_.Remove(&s);
  kv_.Release(s);
}

bool SequenceTable::Finish(Sequence& s) {
  Drop(s);
  const auto it = requests_.find(s.id);
  std::erase_if(it->second.live, [&](const auto& other) { return other.get() == &s; });
  if (!it->second.live.empty()) return false;
  requests_.erase(it);
  return true;
}

bool SequenceTable::FinishChoice(uint64_t id, int choice) {
  for (const auto& s : requests_.at(id).live) {
    if (s->choice == choice) return Finish(*std::shared_ptr<Sequence>(s));
  }
  LOG(FATAL) << "request " << id << " has no choice " << choice;
}

const Sequence* SequenceTable::Find(uint64_t id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.live.front().get();
}

bool SequenceTable::Remove(uint64_t id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return false;
  for (const auto& s : it->second.live) Drop(*s);
  requests_.erase(it);
  return true;
}

int SequenceTable::unpromised_blocks() const {
  int owed = 0;
  for (const auto& [id, request] : requests_) {
    for (const auto& s : request.live) owed += std::max(s->reserve_blocks - int(s->blocks.size()), 0);
  }
  return std::max(kv_.free() - owed, 0);
}

}  // namespace sluice::engine
