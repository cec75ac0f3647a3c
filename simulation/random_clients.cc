#include "simulation/random_clients.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {

void RandomClients::Start() {
  cluster_.schedule().After(options_.every * rng_.Exponential(), [this] {
    if (no_more_) return;
    SubmitNext();
    Start();
  });
}

router::Submit RandomClients::Ask() {
  const uint64_t call = next_call_++;
  router::Submit submit{
      .call = call, .request_id = absl::StrCat("r", call), .sequence = {}, .received = cluster_.now()};
  pb::SequenceSpec& spec = submit.sequence;
  const int prompt = rng_.OneIn(8) ? 1 + int(rng_.Below(3)) : rng_.Between(1, options_.most_prompt);
  const int shared = rng_.OneIn(2) ? rng_.Between(0, prompt) : 0;
  const uint64_t beginning = rng_.Below(4);
  for (int i = 0; i < prompt; ++i) {
    spec.add_tokens(int32_t(100 + (i < shared ? Mix(beginning, uint64_t(i)) : rng_.Next()) % 30000));
  }
  spec.set_num_prompt_tokens(prompt);
  spec.add_eos_token_ids(kEos);
  spec.set_priority(rng_.OneIn(4) ? rng_.Between(-1, 2) : 0);
  spec.set_tenant(absl::StrCat("tenant", rng_.Below(3)));
  pb::SamplingParams& sampling = *spec.mutable_sampling();
  sampling.set_n(rng_.OneIn(6) ? rng_.Between(2, options_.most_choices) : 1);
  sampling.set_max_tokens(rng_.OneIn(8) ? 1 : rng_.Between(1, options_.most_answer));
  sampling.set_seed(rng_.Next());
  sampling.set_ignore_eos(rng_.OneIn(3));
  if (rng_.OneIn(8)) sampling.set_min_tokens(rng_.Between(0, 10));
  if (rng_.OneIn(8)) sampling.set_logprobs(0);
  if (rng_.OneIn(12)) sampling.set_prompt_logprobs(0);
  if (rng_.OneIn(10)) submit.deadline = cluster_.now() + rng_.Between(absl::Milliseconds(1), absl::Seconds(1));
  return submit;
}

void RandomClients::SubmitNext() {
  router::Submit submit = Ask();
  totals_.several += submit.sequence.sampling().n() > 1;
  Client& client = *(clients_[submit.call] = std::make_unique<Client>(submit));
  cluster_.Post(std::move(submit));
  if (client.ended()) return;
  if (rng_.OneIn(10)) {
    cluster_.schedule().After(rng_.Between(absl::ZeroDuration(), absl::Milliseconds(600)), [this, &client] {
      if (client.ended()) return;
      client.Cancelled();
      ++totals_.cancels;
      cluster_.Post(router::ClientCancel{client.call(), absl::CancelledError("the client is gone")});
    });
  } else if (rng_.OneIn(10)) {
    stops_[client.call()] = {rng_.Between(0, client.choices() - 1), rng_.Between(1, options_.most_answer)};
  }
}

void RandomClients::Saw(const router::Action& action) {
  if (const auto* tokens = std::get_if<router::ClientTokens>(&action)) {
    const auto it = clients_.find(tokens->call);
    if (it == clients_.end()) return violate_(absl::StrCat("tokens of call ", tokens->call, ", which nobody made"));
    Client& client = *it->second;
    totals_.tokens += tokens->tokens.token_ids_size();
    if (const std::string wrong = client.OnTokens(*tokens); !wrong.empty()) {
      violate_(absl::StrCat("call ", tokens->call, ": ", wrong));
      return;
    }
    const auto stop = stops_.find(tokens->call);
    if (stop == stops_.end() || client.got(stop->second.first) < stop->second.second) return;
    // The edge says so in its own time: more may come meanwhile.
    const int choice = stop->second.first;
    stops_.erase(stop);
    ++totals_.stops;
    client.Stopped(choice);
    cluster_.schedule().After(rng_.Between(absl::ZeroDuration(), absl::Milliseconds(5)),
                              [this, call = tokens->call, choice] {
                                if (!clients_.at(call)->ended()) cluster_.Post(router::StopFound{call, choice});
                              });
  } else if (const auto* end = std::get_if<router::ClientEnd>(&action)) {
    const auto it = clients_.find(end->call);
    if (it == clients_.end()) return violate_(absl::StrCat("the end of call ", end->call, ", which nobody made"));
    const bool again = it->second->ended();
    if (const std::string wrong = it->second->OnEnd(*end); !wrong.empty()) {
      violate_(absl::StrCat("call ", end->call, ": ", wrong));
    }
    ended_ += !again;
    totals_.deadlines += absl::IsDeadlineExceeded(end->status);
  }
}

}  // namespace sluice::simulation
