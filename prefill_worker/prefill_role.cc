#include "prefill_worker/prefill_role.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/kv_layout.h"
#include "kvtransfer/error_info.h"
#include "worker/error_info.h"

namespace sluice::prefill_worker {

using worker::MakeError;

namespace {

// A piece costs the thread that moves it a few messages: below this they would be more than the copy.
constexpr size_t kLeastGroupBytes = size_t{256} << 10;

}  // namespace

PrefillRole::PrefillRole(const kernels::KvLayout& layout, worker::EnginePort& engine, worker::RequestTable& requests,
                         KvOutbox& outbox)
    : layout_(layout),
      block_size_(layout.block_size),
      engine_(engine),
      requests_(requests),
      outbox_(outbox),
      whole_(engine, requests) {}

std::optional<v1::ErrorInfo> PrefillRole::Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                                v1::LeaseGranted& granted) {
  if (!reserve.compute_prompt()) {
    return MakeError(v1::INCOMPATIBLE,
                     "this is a prefill worker: send Reserve to a decode worker, or with compute_prompt");
  }
  return whole_.Admit(id, reserve, std::move(request), granted);
}

std::optional<v1::ErrorInfo> PrefillRole::Admit(uint64_t id, const v1::Prefill& prefill,
                                                engine::EngineRequest request) {
  if (auto error = CheckHandOver(prefill, request)) return error;
  Job job;
  job.tokens = int(request.tokens.size());
  job.sent_blocks = prefill.decode_prefix_tokens() / block_size_;
  job.open_choices = request.n;
  request.park_after_first = prefill.has_lease();
  if (absl::Status added = engine_.Add(std::move(request)); !added.ok()) return worker::ErrorOfRefusedAdd(added);
  if (prefill.has_lease()) {
    job.transfer = TransferId{prefill.lease().decode_incarnation(), prefill.lease().lease_id()};
    job.key = prefill.key();
    by_transfer_[*job.transfer] = id;
  }
  jobs_[id] = job;
  return std::nullopt;
}

std::optional<v1::ErrorInfo> PrefillRole::CheckHandOver(const v1::Prefill& prefill,
                                                        const engine::EngineRequest& request) const {
  const int generated = int(request.tokens.size()) - request.num_prompt_tokens;
  if (!prefill.has_lease()) {
    if (request.sampling.max_tokens - generated <= 1) return std::nullopt;
    return MakeError(v1::INVALID_REQUEST, "lease: is missing; only an answer of one token needs none");
  }
  const TransferId transfer{prefill.lease().decode_incarnation(), prefill.lease().lease_id()};
  if (by_transfer_.contains(transfer)) {
    return MakeError(v1::INVALID_REQUEST, absl::StrCat("lease: ", transfer.lease_id, " is in use already"));
  }
  const int prefix = prefill.decode_prefix_tokens();
  if (prefix < 0 || prefix >= int(request.tokens.size()) || prefix % block_size_ != 0) {
    return MakeError(v1::INVALID_REQUEST,
                     absl::StrCat("decode_prefix_tokens: ", prefix, " is not a number of whole blocks of ", block_size_,
                                  " tokens that leaves something of the ", request.tokens.size(), " tokens"));
  }
  return std::nullopt;
}

void PrefillRole::OnPlanned(engine::StepWork& step) {
  std::vector<std::shared_ptr<LastChunk>> leaving;
  for (const engine::Chunk& chunk : step.plan.chunks) {
    const auto it = jobs_.find(chunk.sequence->id);
    if (it == jobs_.end()) continue;
    Job& job = it->second;
    if (!job.transfer || job.state != State::kComputing || chunk.begin + chunk.count != job.tokens) continue;
    const int blocks = kernels::BlocksFor(job.tokens, block_size_);
    if (job.sent_blocks >= blocks) continue;
    if (!job.opened) OpenNow(chunk.sequence->id, job);
    job.last_chunk = std::make_shared<LastChunk>();
    job.last_chunk->transfer = *job.transfer;
    job.last_chunk->from = std::exchange(job.sent_blocks, blocks);
    job.last_chunk->to = blocks;
    const size_t layer_bytes = size_t(blocks - job.last_chunk->from) * layout_.block_bytes();
    job.last_chunk->group = int((kLeastGroupBytes + layer_bytes - 1) / layer_bytes);
    leaving.push_back(job.last_chunk);
  }
  if (leaving.empty()) return;
  step.after_layer = [&outbox = outbox_, leaving = std::move(leaving)](int layers) {
    for (const std::shared_ptr<LastChunk>& chunk : leaving) {
      if (layers - chunk->layers_sent < chunk->group) continue;
      outbox.AddBlocks(chunk->transfer, chunk->from, chunk->to, {chunk->layers_sent, layers});
      chunk->layers_sent = layers;
    }
  };
}

void PrefillRole::OnStep(const std::vector<engine::TokenOutput>& outputs,
                         const std::vector<engine::SequenceProgress>& progress, absl::Time now) {
  for (const engine::SequenceProgress& p : progress) {
    if (whole_.Has(p.id)) continue;
    Job& job = jobs_.at(p.id);
    if (job.transfer && !job.opened) Open(p.id, job);
    SendBlocks(job, p.computed);
    if (p.computed == job.tokens) SendRest(job);  // the last chunk may be planned, and no more
    requests_.AddProgress(p.id, "prefill_chunk", now, p.computed);
  }
  for (const engine::TokenOutput& output : outputs) {
    if (whole_.Has(output.id)) {
      whole_.OnOutput(output);
    } else {
      OnFirstToken(output, now);
    }
  }
}

void PrefillRole::OpenNow(uint64_t id, Job& job) {
  outbox_.Open(*job.transfer, job.key, engine_.BlocksOf(id));
  job.opened = true;
}

void PrefillRole::Open(uint64_t id, Job& job) {
  OrderAfterStep([this, transfer = *job.transfer, key = job.key, blocks = engine_.BlocksOf(id)]() mutable {
    outbox_.Open(transfer, std::move(key), std::move(blocks));
  });
  job.opened = true;
}

// Whole blocks, and with the last token the last, partial one.
void PrefillRole::SendBlocks(Job& job, int computed) {
  if (!job.transfer) return;
  const int ready = computed == job.tokens ? kernels::BlocksFor(computed, block_size_) : computed / block_size_;
  if (ready <= job.sent_blocks) return;
  OrderAfterStep([this, transfer = *job.transfer, from = job.sent_blocks, ready] {
    outbox_.AddBlocks(transfer, from, ready, {});
  });
  job.sent_blocks = ready;
}

// The layers of the last chunk that have not left while its step ran.
void PrefillRole::SendRest(Job& job) {
  if (job.last_chunk == nullptr) return;
  const LastChunk chunk = *std::exchange(job.last_chunk, nullptr);
  if (chunk.layers_sent == layout_.num_layers) return;
  OrderAfterStep([this, chunk] {
    outbox_.AddBlocks(chunk.transfer, chunk.from, chunk.to, {chunk.layers_sent, layout_.num_layers});
  });
}

void PrefillRole::OnFirstToken(const engine::TokenOutput& output, absl::Time now) {
  const uint64_t id = output.id;
  Job& job = jobs_.at(id);
  requests_.AddToken(output);
  if (job.commit.first_tokens().empty()) requests_.AddProgress(id, "first_token", now);
  const bool over = output.finish != engine::FinishReason::kNone;
  v1::FirstToken& first = *job.commit.add_first_tokens();
  first.set_choice(output.choice);
  first.set_token_id(output.sampled.token);
  first.set_finished(over);
  job.commit.set_cached_tokens(output.cached_tokens);
  job.goes_on |= !over;
  const bool all = --job.open_choices == 0;
  if (over) requests_.AddFinished(id, output.choice, output.finish, output.cached_tokens, all && !job.goes_on);
  if (all) HandOver(id, job, now);
}

// All choices have their first token.
void PrefillRole::HandOver(uint64_t id, Job& job, absl::Time now) {
  if (!job.transfer) {
    jobs_.erase(id);
    return requests_.EndNow(id, std::nullopt);
  }
  if (!job.goes_on) {
    OrderAfterStep([this, transfer = *job.transfer] {
      outbox_.Cancel(transfer, kvtransfer::FromErrorInfo(
                                   MakeError(v1::CANCELLED_BY_CLIENT, "the answer was over with its first token")));
    });
    job.state = State::kLeaving;
    return requests_.EndLater(id, std::nullopt);
  }
  job.commit.set_computed_tokens(job.tokens);
  job.state = State::kHandingOver;
  job.computed_at = now;
  OrderAfterStep([this, transfer = *job.transfer, commit = std::move(job.commit)]() mutable {
    outbox_.Commit(transfer, std::move(commit));
  });
}

void PrefillRole::AfterStep() {
  for (const auto& order : std::exchange(orders_, {})) order();
}

bool PrefillRole::Stop(uint64_t id, const v1::ErrorInfo& why) {
  if (whole_.Has(id)) {
    whole_.Stop(id);
    return true;
  }
  Job& job = jobs_.at(id);
  if (!job.opened) {
    Drop(id);
    return true;
  }
  if (job.state != State::kLeaving) {
    engine_.Park(id);
    outbox_.Cancel(*job.transfer, kvtransfer::FromErrorInfo(why));
    job.state = State::kLeaving;
  }
  return false;
}

void PrefillRole::OnAcked(TransferId transfer, int64_t bytes, absl::Time at) {
  const auto it = by_transfer_.find(transfer);
  if (it == by_transfer_.end() || jobs_.at(it->second).state == State::kLeaving) return;
  requests_.UpdateProgress(it->second, "piece_acked", at, bytes);
}

void PrefillRole::OnTransferEnd(TransferId transfer, const kvtransfer::Sender::End& end, absl::Time at) {
  const auto it = by_transfer_.find(transfer);
  if (it == by_transfer_.end()) return;
  const uint64_t id = it->second;
  const Job job = jobs_.at(id);
  Drop(id);
  if (job.state == State::kLeaving) return requests_.Ended(id);
  if (!end.status.ok()) return requests_.EndNow(id, worker::ErrorOfTransfer(end.status));
  requests_.AddProgress(id, "transfer_done", at, absl::ToInt64Microseconds(at - job.computed_at));
  requests_.EndNow(id, std::nullopt);
}

void PrefillRole::Drop(uint64_t id) {
  engine_.Cancel(id);
  const Job& job = jobs_.at(id);
  if (job.transfer) by_transfer_.erase(*job.transfer);
  jobs_.erase(id);
}

}  // namespace sluice::prefill_worker
