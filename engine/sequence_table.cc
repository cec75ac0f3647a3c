#include "engine/sequence_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/kv_layout.h"

namespace sluice::engine {

SequenceTable::SequenceTable(const SequenceLimits& limits, const SchedulerLimits& scheduler)
    : limits_(limits), blocks_(limits.num_blocks), scheduler_(scheduler) {}

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
  if (r.park_after_first && r.awaiting_kv) {
    return absl::InvalidArgumentError("a request cannot both await its KV and park after its first token");
  }
  if (r.awaiting_kv && given + 1 >= total) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.max_tokens (", r.sampling.max_tokens,
                                                   ") leaves nothing to generate after the token that comes with "
                                                   "the KV"));
  }
  if (sequences_.contains(r.id)) {
    return absl::InvalidArgumentError(absl::StrCat("a request with the id ", r.id, " is alive already"));
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::Add(EngineRequest r) {
  if (absl::Status status = CheckShape(r); !status.ok()) return status;
  const int tokens = r.park_after_first ? int(r.tokens.size()) : r.num_prompt_tokens + r.sampling.max_tokens;
  const int needed = kernels::BlocksFor(tokens, limits_.block_size);
  if (needed > blocks_.total()) {
    return absl::FailedPreconditionError(absl::StrCat(r.park_after_first ? "the prompt (" : "prompt + max_tokens (",
                                                      tokens, " tokens) need ", needed, " KV blocks; the pool has ",
                                                      blocks_.total(), " of ", limits_.block_size, " tokens each"));
  }
  std::optional<std::vector<int32_t>> blocks = blocks_.Allocate(needed);
  if (!blocks) {
    return absl::ResourceExhaustedError(
        absl::StrCat(needed, " KV blocks are needed; ", blocks_.free(), " of ", blocks_.total(), " are free"));
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = r.id;
  sequence->choice = r.choice;
  sequence->tokens = std::move(r.tokens);
  sequence->tokens.reserve(tokens + 1);
  sequence->num_prompt_tokens = r.num_prompt_tokens;
  sequence->blocks = *std::move(blocks);
  sequence->sampling = std::move(r.sampling);
  sequence->priority = r.priority;
  sequence->arrival = arrivals_++;
  sequence->park_after_first = r.park_after_first;
  sequence->awaiting_kv = r.awaiting_kv;
  if (!r.awaiting_kv) scheduler_.Add(sequence.get());
  sequences_.emplace(r.id, std::move(sequence));
  return absl::OkStatus();
}

bool SequenceTable::Park(uint64_t id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return false;
  it->second->awaiting_kv = false;
  scheduler_.Remove(it->second.get());
  return true;
}

absl::Status SequenceTable::Activate(uint64_t id, int32_t first_token) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return absl::NotFoundError(absl::StrCat("there is no request with the id ", id));
  Sequence& s = *it->second;
  if (!s.awaiting_kv) return absl::FailedPreconditionError(absl::StrCat("request ", id, " does not await its KV"));
  if (first_token < 0 || first_token >= limits_.vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("the first token is ", first_token, "; the vocabulary has ", limits_.vocab, " tokens"));
  }
  s.awaiting_kv = false;
  s.computed = int(s.tokens.size());
  s.tokens.push_back(first_token);
  scheduler_.Add(&s);
  return absl::OkStatus();
}

void SequenceTable::Settle(uint64_t id, bool over) {
  const Sequence* s = Find(id);
  if (s == nullptr) return;
  if (s->park_after_first) {
    Park(id);
  } else if (over) {
    Remove(id);
  }
}

const Sequence* SequenceTable::Find(uint64_t id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

bool SequenceTable::Remove(uint64_t id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return false;
  scheduler_.Remove(it->second.get());
  for (int32_t block : it->second->blocks) blocks_.Unref(block);
  sequences_.erase(it);
  return true;
}

}  // namespace sluice::engine
