#include "simulation/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "simulation/client.h"
#include "simulation/cluster.h"

namespace sluice::simulation {
namespace {

constexpr absl::Duration kPairing = absl::Seconds(20);  // decode workers first, then prefill workers find them

double Percentile(const std::vector<float>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double at = share * double(sorted.size() - 1);
  const size_t below = size_t(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

Spread SpreadOf(std::vector<float>& values) {
  std::sort(values.begin(), values.end());
  Spread spread{Percentile(values, 0.5), Percentile(values, 0.9), Percentile(values, 0.99), 0};
  if (!values.empty()) spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
  return spread;
}

class Replayed {
 public:
  Replayed(const ReplayOptions& options, const std::vector<TraceRequest>& trace,
           const std::function<void(int64_t)>& progress)
      : options_(options), trace_(trace), progress_(progress), rng_(options.seed) {
    FindRepeats();
    PlanArrivals();
    ClusterOptions cluster;
    cluster.seed = rng_.Next();
    cluster.core.registry.model_hash = "simulated";
    // Nobody fails here: fewer heartbeats tell as much.
    cluster.core.registry.heartbeat = absl::Seconds(5);
    cluster.core.registry.lease = absl::Seconds(60);
    cluster.core.queue.limit = options.queue_limit;
    cluster.core.policy = options.policy;
    cluster.core.seed = rng_.Next();
    cluster.core.prefix_entries = size_t{1} << 26;
    cluster.network.spike_one_in = 0;
    cluster.patience = absl::Hours(1);
    const auto add = [&](int count, WorkerModel model, pb::Role role) {
      model.role = role;
      cluster.workers.insert(cluster.workers.end(), size_t(count), model);
    };
    add(options.decode, options.decode_model, pb::ROLE_DECODE);
    add(options.both, options.both_model, pb::ROLE_BOTH);
    add(options.prefill, options.prefill_model, pb::ROLE_PREFILL);
    cluster_ = std::make_unique<Cluster>(
        cluster, ClusterHooks{nullptr, [this](const auto& action) { Saw(action); }, nullptr, nullptr});
  }

  ReplayResult Run() {
    for (int slot = 0; slot < cluster_->slots(); ++slot) {
      const bool prefill = slot >= options_.decode + options_.both;
      cluster_->schedule().At(kStart + (prefill ? absl::Seconds(2) : absl::ZeroDuration()),
                              [this, slot] { cluster_->Start(slot); });
    }
    begin_ = kStart + kPairing;
    cluster_->schedule().At(begin_ + absl::Seconds(arrivals_.front().at_s), [this] { SubmitNext(); });
    while (ended_ < int64_t(arrivals_.size()) && cluster_->RunNext()) {
    }
    Collect();
    return std::move(result_);
  }

 private:
  struct Arrival {
    double at_s = 0;
    uint32_t row = 0;
    uint32_t copy = 0;
  };
  struct Call {
    explicit Call(const router::Submit& submit) : client(submit) {}
    Client client;
    size_t row = 0;
    absl::Time received;
    absl::Time first;
    absl::Time last;
    int tokens = 0;
  };

  void FindRepeats() {
    absl::flat_hash_set<uint64_t> seen;
    for (const TraceRequest& row : trace_) {
      size_t known = 0;
      while (known < row.blocks.size() && seen.contains(row.blocks[known])) ++known;
      repeats_.push_back(known > 0 && 2 * int64_t(known) * kTraceBlock >= row.prompt_tokens);
      seen.insert(row.blocks.begin(), row.blocks.end());
    }
  }

  // As many copies at once as the rate needs at about the trace's own pace: each lane has one after the other.
  void PlanArrivals() {
    const double span = trace_.back().at_s + trace_.back().at_s / double(trace_.size());
    const double own_rate = double(trace_.size()) / std::max(span, 1e-9);
    const auto copies = (options_.requests + int64_t(trace_.size()) - 1) / int64_t(trace_.size());
    const double lanes = std::clamp(std::round(options_.rate / own_rate), 1.0, double(copies));
    const double period = span * own_rate * lanes / options_.rate;  // that a copy takes
    std::vector<double> shift;
    for (int lane = 0; lane < int(lanes); ++lane) shift.push_back(lane == 0 ? 0 : rng_.Uniform() * span);
    for (uint32_t copy = 0; arrivals_.size() < size_t(options_.requests); ++copy) {
      const int lane = int(copy) % int(lanes);
      const double begin = double(copy / uint32_t(lanes)) * period;
      const size_t left = size_t(options_.requests) - arrivals_.size();
      for (size_t row = 0; row < std::min(trace_.size(), left); ++row) {
        const double at = std::fmod(trace_[row].at_s + shift[size_t(lane)], span) / span;
        arrivals_.push_back({begin + at * period, uint32_t(row), copy});
      }
    }
    std::stable_sort(arrivals_.begin(), arrivals_.end(), [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  }

  router::Submit Ask(const Arrival& arrival) {
    const TraceRequest& row = trace_[arrival.row];
    router::Submit submit{
        .call = next_ + 1, .request_id = absl::StrCat("r", next_ + 1), .sequence = {}, .received = cluster_->now()};
    pb::SequenceSpec& spec = submit.sequence;
    auto& tokens = *spec.mutable_tokens();
    tokens.Reserve(row.prompt_tokens);
    const uint64_t own = Mix(uint64_t(arrival.row) << 1 | 1, arrival.copy);  // of what nobody shares
    uint64_t chain = 0;
    for (int i = 0; i < row.prompt_tokens; ++i) {
      if (i % kTraceBlock == 0) {
        const size_t block = size_t(i / kTraceBlock);
        const bool known = block < row.blocks.size();
        chain = known ? Mix(row.blocks[block] << 1, arrival.copy) : Mix(own, block);
      }
      chain = chain * 6364136223846793005u + 1442695040888963407u;
      tokens.AddAlreadyReserved(int32_t(100 + (chain >> 40) % 30000));
    }
    spec.set_num_prompt_tokens(row.prompt_tokens);
    spec.add_eos_token_ids(kEos);
    spec.mutable_sampling()->set_n(1);
    spec.mutable_sampling()->set_max_tokens(row.answer_tokens);
    spec.mutable_sampling()->set_seed(next_);
    spec.mutable_sampling()->set_ignore_eos(true);
    return submit;
  }

  void SubmitNext() {
    router::Submit submit = Ask(arrivals_[next_]);
    auto call = std::make_unique<Call>(submit);
    call->row = arrivals_[next_].row;
    call->received = cluster_->now();
    calls_[submit.call] = std::move(call);
    ++next_;
    if (next_ < arrivals_.size()) {
      cluster_->schedule().At(begin_ + absl::Seconds(arrivals_[next_].at_s), [this] { SubmitNext(); });
    }
    cluster_->Post(std::move(submit));
    result_.most_queued = std::max(result_.most_queued, size_t(cluster_->core().sizes().queued));
  }

  void Wrong(uint64_t call, const std::string& what) {
    if (what.empty()) return;
    if (result_.wrong++ == 0) result_.first_wrong = absl::StrCat("call ", call, ": ", what);
  }

  void Saw(const router::Action& action) {
    if (const auto* tokens = std::get_if<router::ClientTokens>(&action)) {
      Call& call = *calls_.at(tokens->call);
      Wrong(tokens->call, call.client.OnTokens(*tokens));
      if (call.tokens == 0) call.first = tokens->at;
      call.last = tokens->at;
      call.tokens += tokens->tokens.token_ids_size();
    } else if (const auto* end = std::get_if<router::ClientEnd>(&action)) {
      const auto it = calls_.find(end->call);
      Ended(*it->second, *end);
      calls_.erase(it);
      if (++ended_ % 10000 == 0 && progress_) progress_(ended_);
    }
  }

  void Ended(Call& call, const router::ClientEnd& end) {
    Wrong(end.call, call.client.OnEnd(end));
    if (!end.status.ok()) {
      ++result_.refused;
      return;
    }
    ++result_.answered;
    last_end_ = end.at;
    const double ttft = absl::ToDoubleMilliseconds(call.first - call.received);
    ttft_.push_back(float(ttft));
    (repeats_[call.row] ? repeat_ttft_ : new_ttft_).push_back(float(ttft));
    double tpot = 0;
    if (call.tokens > 1) {
      tpot = absl::ToDoubleMilliseconds(call.last - call.first) / (call.tokens - 1);
      tpot_.push_back(float(tpot));
    }
    for (const pb::TimelineEvent& entry : end.timeline) {
      if (entry.name() != "reserved" && entry.name() != "prefilling") continue;
      queue_.push_back(float(entry.at_ms()));
      break;
    }
    good_ += ttft <= options_.ttft_slo_ms && tpot <= options_.tpot_slo_ms;
  }

  void Collect() {
    const double seconds = absl::ToDoubleSeconds(last_end_ - begin_);
    result_.requests = int64_t(arrivals_.size());
    result_.virtual_s = seconds;
    result_.ttft_ms = SpreadOf(ttft_);
    result_.repeat_ttft_ms = SpreadOf(repeat_ttft_);
    result_.new_ttft_ms = SpreadOf(new_ttft_);
    result_.tpot_ms = SpreadOf(tpot_);
    result_.queue_ms = SpreadOf(queue_);
    result_.attainment = double(good_) / double(result_.requests);
    result_.goodput = double(good_) / std::max(seconds, 1e-9);
    result_.events = cluster_->events();
    int64_t prompt_tokens = 0;
    int64_t hit_tokens = 0;
    std::vector<double> prompts, answers;
    for (int slot = 0; slot < cluster_->slots(); ++slot) {
      const ModelWorker& worker = *cluster_->worker(slot);
      prompt_tokens += worker.totals().prompt_tokens;
      hit_tokens += worker.totals().hit_tokens;
      if (worker.role() != pb::ROLE_DECODE) prompts.push_back(worker.totals().execute_seconds);
      if (worker.role() != pb::ROLE_PREFILL) answers.push_back(worker.totals().execute_seconds);
    }
    result_.hit_share = prompt_tokens == 0 ? 0 : double(hit_tokens) / double(prompt_tokens);
    const auto mean = [](const std::vector<double>& v) {
      return v.empty() ? 0 : std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
    };
    const auto imbalance = [&](const std::vector<double>& v) {
      return mean(v) <= 0 ? 0 : *std::max_element(v.begin(), v.end()) / mean(v);
    };
    result_.prompt_imbalance = imbalance(prompts);
    result_.answer_imbalance = imbalance(answers);
    result_.prompt_use = mean(prompts) / std::max(seconds, 1e-9);
    result_.answer_use = mean(answers) / std::max(seconds, 1e-9);
  }

  const ReplayOptions options_;
  const std::vector<TraceRequest>& trace_;
  const std::function<void(int64_t)> progress_;
  Rng rng_;
  std::vector<Arrival> arrivals_;
  std::unique_ptr<Cluster> cluster_;
  absl::Time begin_;
  absl::Time last_end_ = kStart;
  size_t next_ = 0;
  int64_t ended_ = 0;
  int64_t good_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Call>> calls_;
  std::vector<bool> repeats_;  // by row
  std::vector<float> ttft_, repeat_ttft_, new_ttft_, tpot_, queue_;
  ReplayResult result_;
};

}  // namespace

double PromptCapacity(const ReplayOptions& options, const std::vector<TraceRequest>& trace) {
  double tokens = 0;
  for (const TraceRequest& request : trace) tokens += request.prompt_tokens;
  const double per_s =
      options.prefill * options.prefill_model.tokens_per_s + options.both * options.both_model.tokens_per_s;
  return per_s * double(trace.size()) / tokens;
}

ReplayResult Replay(const ReplayOptions& options, const std::vector<TraceRequest>& trace,
                    const std::function<void(int64_t)>& progress) {
  return Replayed(options, trace, progress).Run();
}

}  // namespace sluice::simulation
