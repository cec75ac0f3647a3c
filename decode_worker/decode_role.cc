#include "decode_worker/decode_role.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvtransfer/error_info.h"
#include "worker/error_info.h"

namespace sluice::decode_worker {

using kvtransfer::Receiver;
using worker::MakeError;

namespace {

// Of the choices that go on.
std::vector<engine::FirstToken> FirstTokensOf(const v1::Commit& commit) {
  std::vector<engine::FirstToken> firsts;
  for (const v1::FirstToken& first : commit.first_tokens()) {
    if (!first.finished()) firsts.push_back({first.choice(), first.token_id()});
  }
  return firsts;
}

}  // namespace

DecodeRole::DecodeRole(const kernels::KvLayout& layout, worker::EnginePort& engine, worker::RequestTable& requests,
                       KvInbox& inbox)
    : layout_(layout), engine_(engine), requests_(requests), inbox_(inbox) {}

std::optional<v1::ErrorInfo> DecodeRole::Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                               v1::LeaseGranted& granted) {
  const bool awaits = !reserve.compute_prompt();
  if (awaits && reserve.prefill_incarnation() == 0) {
    return MakeError(v1::INVALID_REQUEST, "prefill_incarnation: is missing; nobody would send the KV");
  }
  const int prompt_tokens = int(request.tokens.size());
  request.headroom_tokens = std::max(reserve.headroom_tokens(), 0);
  request.awaiting_kv = awaits;
  if (awaits) request.prompt_logprobs = -1;  // who computes the prompt knows them; here its prefix hits count
  if (absl::Status added = engine_.Add(std::move(request)); !added.ok()) return worker::ErrorOfRefusedAdd(added);

  std::vector<int32_t> blocks = engine_.BlocksOf(id);
  granted.add_blocks()->set_num_blocks(int32_t(blocks.size()));
  granted.mutable_blocks(0)->set_state_slot(-1);
  Lease& lease = leases_[id];
  lease.prompt_tokens = prompt_tokens;
  lease.cached_tokens = awaits ? engine_.CachedTokensOf(id) : 0;
  granted.set_prefix_tokens(lease.cached_tokens);
  if (awaits) {
    lease.state = State::kAwaiting;
    lease.says_decoding = true;
    blocks.resize(size_t(kernels::BlocksFor(prompt_tokens, layout_.block_size)));
    inbox_.Expect(id, reserve.prefill_incarnation(), reserve.key(), std::move(blocks),
                  lease.cached_tokens / layout_.block_size);
  }
  return std::nullopt;
}

std::optional<v1::ErrorInfo> DecodeRole::Admit(uint64_t, const v1::Prefill&, engine::EngineRequest) {
  return MakeError(v1::INCOMPATIBLE,
                   "this is a decode worker: send Prefill to a prefill worker, or Reserve with compute_prompt here");
}

void DecodeRole::OnStep(const std::vector<engine::TokenOutput>& outputs, const std::vector<engine::SequenceProgress>&,
                        absl::Time now) {
  for (const engine::TokenOutput& output : outputs) {
    Lease& lease = leases_.at(output.id);
    if (std::exchange(lease.says_decoding, false)) requests_.AddProgress(output.id, "decoding", now);
    requests_.AddToken(output);
    if (output.finish == engine::FinishReason::kNone) continue;
    requests_.AddFinished(output.id, output.choice, output.finish,
                          lease.saved_tokens >= 0 ? lease.saved_tokens : output.cached_tokens, output.last);
    if (!output.last) continue;
    leases_.erase(output.id);
    requests_.EndNow(output.id, std::nullopt);
  }
}

bool DecodeRole::Stop(uint64_t id, const v1::ErrorInfo& why) {
  Lease& lease = leases_.at(id);
  if (lease.state == State::kDecoding) {
    Drop(id);
    return true;
  }
  if (lease.state == State::kAwaiting) inbox_.Forget(id, kvtransfer::FromErrorInfo(why));
  lease.state = State::kLeaving;
  return false;
}

void DecodeRole::OnKvEnd(const Receiver::End& end, absl::Time at) {
  const uint64_t id = end.lease_id;
  const auto it = leases_.find(id);
  if (it == leases_.end()) return;
  Lease& lease = it->second;
  if (lease.state == State::kLeaving) {
    Drop(id);
    return requests_.Ended(id);
  }
  absl::Status status = end.status;
  if (status.ok()) status = CheckHandedOver(lease, end);
  if (status.ok()) status = engine_.Activate(id, FirstTokensOf(end.commit));
  if (!status.ok()) {
    Drop(id);
    return requests_.EndNow(id, worker::ErrorOfTransfer(status));
  }
  StartDecoding(id, lease, end, at);
}

// The transfer vouches for the pieces that the Commit counts; that these are the right ones is checked here.
absl::Status DecodeRole::CheckHandedOver(const Lease& lease, const Receiver::End& end) const {
  const int64_t blocks =
      kernels::BlocksFor(lease.prompt_tokens, layout_.block_size) - lease.cached_tokens / layout_.block_size;
  const int64_t due = blocks * int64_t(layout_.block_bytes_all_layers());
  if (end.bytes != due) {
    return absl::InternalError(
        absl::StrCat("the prefill worker committed ", end.bytes, " bytes of KV; ", due, " bytes were due"));
  }
  if (end.commit.computed_tokens() != lease.prompt_tokens) {
    return absl::InternalError(absl::StrCat("the prefill worker computed ", end.commit.computed_tokens(), " of ",
                                            lease.prompt_tokens, " tokens"));
  }
  if (end.commit.first_tokens().empty()) {
    return absl::InternalError("the prefill worker committed without a first token to go on from");
  }
  return absl::OkStatus();
}

void DecodeRole::StartDecoding(uint64_t id, Lease& lease, const Receiver::End& end, absl::Time at) {
  lease.state = State::kDecoding;
  lease.saved_tokens = end.commit.cached_tokens();
  v1::Committed* committed = requests_.NewEvent(id)->mutable_committed();
  committed->set_lease_id(id);
  committed->set_bytes(end.bytes);
  committed->set_exposed_transfer_ms(absl::ToDoubleMilliseconds(end.exposed));
  requests_.AddProgress(id, "committed", at, end.bytes);
}

void DecodeRole::Drop(uint64_t id) {
  engine_.Cancel(id);
  leases_.erase(id);
}

}  // namespace sluice::decode_worker
