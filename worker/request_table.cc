#include "worker/request_table.h"

#include <algorithm>
#include <utility>

namespace sluice::worker {
namespace {

v1::FinishReason ToWire(engine::FinishReason reason) {
  return reason == engine::FinishReason::kStop ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
}

// The tokens' bytes stay empty: a worker knows no text.
void FillLogprobs(const engine::Sampled& sampled, v1::TokenLogprobs* to) {
  to->mutable_sampled()->set_token_id(sampled.token);
  to->mutable_sampled()->set_logprob(sampled.logprob);
  for (const auto& [token, logprob] : sampled.top) {
    v1::TokenLogprob* top = to->add_top();
    top->set_token_id(token);
    top->set_logprob(logprob);
  }
}

}  // namespace

uint64_t RequestTable::Add(Arrival arrival) {
  const uint64_t id = leases_.Grant(arrival.received);
  if (!arrival.leased) leases_.Release(id);
  if (arrival.deadline != absl::InfiniteFuture()) deadlines_.emplace(arrival.deadline, id);
  by_key_.emplace(KeyOf(arrival), id);
  by_stream_[arrival.stream].insert(id);
  requests_[id].arrival = std::move(arrival);
  return id;
}

void RequestTable::StopTimers(uint64_t id) {
  leases_.Release(id);
  deadlines_.erase({arrival(id).deadline, id});
}

void RequestTable::FreeKey(uint64_t id) {
  const auto it = by_key_.find(KeyOf(arrival(id)));
  if (it != by_key_.end() && it->second == id) by_key_.erase(it);
}

void RequestTable::Forget(uint64_t id) {
  StopTimers(id);
  FreeKey(id);
  const auto of_stream = by_stream_.find(arrival(id).stream);
  of_stream->second.erase(id);
  if (of_stream->second.empty()) by_stream_.erase(of_stream);
  requests_.erase(id);
}

uint64_t RequestTable::Find(StreamId stream, const v1::RequestKey& key) const {
  const auto it = by_key_.find(KeyOfStream{stream, key.request_id(), key.attempt()});
  return it == by_key_.end() ? 0 : it->second;
}

std::vector<uint64_t> RequestTable::All() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<uint64_t> RequestTable::OfStream(StreamId stream) const {
  const auto it = by_stream_.find(stream);
  if (it == by_stream_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

v1::WorkerEvent* RequestTable::NewEvent(uint64_t id) {
  Request& request = requests_.at(id);
  const Arrival& from = request.arrival;
  if (std::optional<v1::TimelineEvent> update = std::exchange(request.update, std::nullopt)) {
    *NewEvent(from.stream, from.key)->mutable_progress()->add_events() = *std::move(update);
  }
  return NewEvent(from.stream, from.key);
}

v1::WorkerEvent* RequestTable::NewEvent(StreamId stream, const v1::RequestKey& key) {
  v1::WorkerEvent* event = PendingOf(stream).message.add_events();
  *event->mutable_key() = key;
  return event;
}

void RequestTable::KeepPrompt(const engine::TokenOutput& output) {
  if (!output.prompt.empty()) requests_.at(output.id).prompt = output.prompt;
}

void RequestTable::AddToken(const engine::TokenOutput& output) {
  Request& request = requests_.at(output.id);
  if (request.tokens == nullptr || request.tokens->choice() != output.choice) {
    request.tokens = NewEvent(output.id)->mutable_tokens();
    request.tokens->set_choice(output.choice);
    request.tokens->set_first_index(output.index);
  }
  for (const engine::Sampled& sampled : std::exchange(request.prompt, {})) {
    FillLogprobs(sampled, request.tokens->add_prompt_logprobs());
  }
  request.tokens->add_token_ids(output.sampled.token);
  if (request.arrival.logprobs) FillLogprobs(output.sampled, request.tokens->add_logprobs());
}

v1::TimelineEvent RequestTable::Entry(uint64_t id, absl::string_view name, absl::Time at, int64_t amount) const {
  v1::TimelineEvent entry;
  entry.set_name(std::string(name));
  entry.set_at_ms(absl::ToDoubleMilliseconds(at - arrival(id).received));
  entry.set_amount(amount);
  return entry;
}

void RequestTable::AddProgress(uint64_t id, absl::string_view name, absl::Time at, int64_t amount) {
  *NewEvent(id)->mutable_progress()->add_events() = Entry(id, name, at, amount);
}

void RequestTable::UpdateProgress(uint64_t id, absl::string_view name, absl::Time at, int64_t amount) {
  requests_.at(id).update = Entry(id, name, at, amount);
}

void RequestTable::AddFinished(uint64_t id, int choice, engine::FinishReason reason, int cached_tokens, bool last) {
  v1::Finished* finished = NewEvent(id)->mutable_finished();
  finished->set_choice(choice);
  finished->set_reason(ToWire(reason));
  finished->set_cached_tokens(cached_tokens);
  finished->set_last(last);
}

void RequestTable::EndNow(uint64_t id, const LastWords& words) {
  if (words) *NewEvent(id)->mutable_failed()->mutable_error() = *words;
  Forget(id);
}

void RequestTable::EndLater(uint64_t id, LastWords words) {
  StopTimers(id);
  if (!words) FreeKey(id);
  Request& request = requests_.at(id);
  request.ending = true;
  request.words = std::move(words);
  request.tokens = nullptr;
  request.update.reset();
}

void RequestTable::Ended(uint64_t id) {
  const LastWords words = std::move(requests_.at(id).words);
  EndNow(id, words);
}

void RequestTable::SayNow(uint64_t id) {
  if (const LastWords& words = requests_.at(id).words) *NewEvent(id)->mutable_failed()->mutable_error() = *words;
  Silence(id);
}

void RequestTable::Silence(uint64_t id) {
  requests_.at(id).words.reset();
  FreeKey(id);
}

void RequestTable::Renew(StreamId stream, uint64_t id, absl::Time received) {
  const auto it = requests_.find(id);
  if (it != requests_.end() && it->second.arrival.stream == stream) leases_.Renew(id, received);
}

std::vector<uint64_t> RequestTable::TakeExpired(absl::Time now) {
  return leases_.Expire(now);
}

std::vector<uint64_t> RequestTable::TakeOverdue(absl::Time now) {
  std::vector<uint64_t> ids;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    ids.push_back(deadlines_.begin()->second);
    deadlines_.erase(deadlines_.begin());
  }
  return ids;
}

absl::Time RequestTable::NextTimer() const {
  const absl::Time deadline = deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  return std::min(deadline, leases_.NextExpiry());
}

Outgoing& RequestTable::PendingOf(StreamId stream) {
  Outgoing& pending = pending_[stream];
  pending.stream = stream;
  return pending;
}

std::vector<Outgoing> RequestTable::TakeOutgoing() {
  for (auto& [id, request] : requests_) request.tokens = nullptr;
  std::vector<Outgoing> taken;
  taken.reserve(pending_.size());
  for (auto& [id, pending] : pending_) taken.push_back(std::move(pending));
  pending_.clear();
  return taken;
}

}  // namespace sluice::worker
