#include "simulation/digest.h"

#include "absl/strings/str_cat.h"
#include "simulation/rng.h"

namespace sluice::simulation {
namespace {

std::string KeyOf(const pb::RequestKey& key) {
  return absl::StrCat(key.request_id(), "#", key.attempt());
}

std::string Describe(const pb::RouterMessage& message) {
  if (message.has_reserve()) {
    return absl::StrCat("Reserve ", KeyOf(message.reserve().key()), " prefill ",
                        message.reserve().prefill_incarnation(), " tokens ",
                        message.reserve().sequence().tokens_size());
  }
  if (message.has_prefill()) return absl::StrCat("Prefill ", KeyOf(message.prefill().key()));
  if (message.has_cancel()) return absl::StrCat("Cancel ", KeyOf(message.cancel().key()), ": ", message.cancel().why());
  if (message.has_release()) return absl::StrCat("Release ", KeyOf(message.release().key()));
  return message.has_renew() ? absl::StrCat("Renew ", message.renew().lease_ids_size()) : "message";
}

std::string Describe(const pb::WorkerEvent& event) {
  const std::string key = KeyOf(event.key());
  switch (event.event_case()) {
    case pb::WorkerEvent::kLeaseGranted:
      return absl::StrCat(key, " granted ", event.lease_granted().lease_id());
    case pb::WorkerEvent::kRefused:
      return absl::StrCat(key, " refused: ", event.refused().error().message());
    case pb::WorkerEvent::kTokens:
      return absl::StrCat(key, " tokens ", event.tokens().choice(), ":", event.tokens().first_index(), "+",
                          event.tokens().token_ids_size());
    case pb::WorkerEvent::kCommitted:
      return absl::StrCat(key, " committed");
    case pb::WorkerEvent::kFailed:
      return absl::StrCat(key, " failed: ", event.failed().error().message());
    case pb::WorkerEvent::kFinished:
      return absl::StrCat(key, " finished ", event.finished().choice(), event.finished().last() ? " last" : "");
    case pb::WorkerEvent::kProgress:
      return absl::StrCat(key, " ", event.progress().events(0).name());
    default:
      return key;
  }
}

}  // namespace

void Digest::Add(uint64_t number) {
  value_ = Mix(value_, number);
}

void Digest::Add(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  Add(hash);
}

void Digest::Add(const pb::RouterMessage& message) {
  Add(uint64_t(message.message_case()));
  const auto key = [this](const pb::RequestKey& k) {
    Add(k.request_id());
    Add(uint64_t(k.attempt()));
  };
  if (message.has_reserve()) {
    key(message.reserve().key());
    Add(message.reserve().prefill_incarnation());
    Add(uint64_t(message.reserve().sequence().tokens_size()));
  } else if (message.has_prefill()) {
    key(message.prefill().key());
    Add(message.prefill().lease().lease_id());
  } else if (message.has_cancel()) {
    key(message.cancel().key());
  } else if (message.has_release()) {
    key(message.release().key());
  } else if (message.has_renew()) {
    for (uint64_t lease : message.renew().lease_ids()) Add(lease);
  }
}

void Digest::Add(const router::Action& action, absl::Time now) {
  Add(uint64_t(action.index()));
  Add(uint64_t(absl::ToUnixNanos(now)));
  if (const auto* tokens = std::get_if<router::ClientTokens>(&action)) {
    Add(tokens->call);
    for (int32_t token : tokens->tokens.token_ids()) Add(uint64_t(token));
  } else if (const auto* end = std::get_if<router::ClientEnd>(&action)) {
    Add(end->call);
    Add(std::string(end->status.message()));
    Add(uint64_t(end->moves));
  } else if (const auto* connect = std::get_if<router::ConnectWorker>(&action)) {
    Add(connect->link);
  } else if (const auto* send = std::get_if<router::SendToWorker>(&action)) {
    Add(send->link);
    Add(send->message);
  }
}

std::string Describe(const router::Action& action) {
  if (const auto* tokens = std::get_if<router::ClientTokens>(&action)) {
    return absl::StrCat("call ", tokens->call, " gets ", tokens->tokens.choice(), ":", tokens->tokens.first_index(),
                        "+", tokens->tokens.token_ids_size());
  }
  if (const auto* end = std::get_if<router::ClientEnd>(&action)) {
    return absl::StrCat("call ", end->call, " ends: ", end->status.ToString());
  }
  if (const auto* connect = std::get_if<router::ConnectWorker>(&action)) {
    return absl::StrCat("link ", connect->link, " to ", connect->incarnation, " at ", connect->endpoint.host());
  }
  if (const auto* disconnect = std::get_if<router::DisconnectWorker>(&action)) {
    return absl::StrCat("link ", disconnect->link, " is closed: ", disconnect->why);
  }
  if (const auto* send = std::get_if<router::SendToWorker>(&action)) {
    return absl::StrCat("link ", send->link, " ", Describe(send->message));
  }
  if (const auto* close = std::get_if<router::CloseAnnounce>(&action)) {
    return absl::StrCat("session ", close->session, " is closed: ", close->status.ToString());
  }
  if (const auto* note = std::get_if<router::Note>(&action)) return absl::StrCat("note: ", note->text);
  return std::holds_alternative<router::PoolChanged>(action) ? "pool changed" : "announcement answered";
}

std::string Describe(const router::Event& event) {
  if (const auto* submit = std::get_if<router::Submit>(&event)) {
    return absl::StrCat("Submit ", submit->call, ": ", submit->sequence.tokens_size(), " + ",
                        submit->sequence.sampling().max_tokens(), " x ", submit->sequence.sampling().n());
  }
  if (const auto* cancel = std::get_if<router::ClientCancel>(&event))
    return absl::StrCat("ClientCancel ", cancel->call);
  if (const auto* stop = std::get_if<router::StopFound>(&event)) {
    return absl::StrCat("StopFound ", stop->call, ":", stop->choice);
  }
  if (const auto* announced = std::get_if<router::WorkerAnnounced>(&event)) {
    return absl::StrCat("WorkerAnnounced ", announced->session, " ", announced->info.work().host(), " ",
                        announced->info.incarnation());
  }
  if (const auto* heartbeat = std::get_if<router::WorkerHeartbeat>(&event)) {
    return absl::StrCat("WorkerHeartbeat ", heartbeat->session);
  }
  if (const auto* leaving = std::get_if<router::WorkerLeaving>(&event)) {
    return absl::StrCat("WorkerLeaving ", leaving->session);
  }
  if (const auto* lost = std::get_if<router::AnnounceLost>(&event)) return absl::StrCat("AnnounceLost ", lost->session);
  if (const auto* up = std::get_if<router::LinkUp>(&event)) return absl::StrCat("LinkUp ", up->link);
  if (const auto* down = std::get_if<router::LinkDown>(&event)) {
    return absl::StrCat("LinkDown ", down->link, ": ", down->why.message());
  }
  if (const auto* batch = std::get_if<router::WorkerBatch>(&event)) {
    std::string text = absl::StrCat("WorkerBatch ", batch->link, ", ", batch->message.report().blocks_free(), " free");
    for (const pb::WorkerEvent& e : batch->message.events()) absl::StrAppend(&text, "; ", Describe(e));
    return text;
  }
  if (const auto* drain = std::get_if<router::DrainWorker>(&event)) {
    return absl::StrCat("DrainWorker ", drain->incarnation, drain->hand_over ? ", hands over" : "");
  }
  return std::holds_alternative<router::Tick>(event) ? "Tick" : "Shutdown";
}

}  // namespace sluice::simulation
