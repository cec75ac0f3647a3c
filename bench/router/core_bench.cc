// What the router's pure core costs, without sockets: processor time per request and per token relayed, per placement
// among many workers, and the memory of the prefix index over a million unique prefixes.
//
//   core_bench [--requests N] [--tokens T] [--workers W] [--prefixes P] [--entries E]
//
// Prints one JSON object. Workers answer at once and obey the protocol; events come batched, one message per step of a
// worker, as they do over the wire.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/core.h"

namespace sluice::router {
namespace {

struct Settings {
  int requests = 20000;
  int tokens = 32;
  int workers = 4;  // of each role
  int prefixes = 1000000;
  int entries = 1 << 20;
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_utime.tv_sec) + double(usage.ru_utime.tv_usec) * 1e-6 + double(usage.ru_stime.tv_sec) +
         double(usage.ru_stime.tv_usec) * 1e-6;
}

double ResidentMiB() {
  std::ifstream statm("/proc/self/statm");
  long size = 0, resident = 0;
  statm >> size >> resident;
  return double(resident) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// A core with prefill and decode workers that answer everything at once.
class Cluster {
 public:
  Cluster(const Settings& settings, Policy policy)
      : settings_(settings), core_([&] {
          CoreOptions options;
          options.queue.limit = 1 << 20;
          options.policy.policy = policy;
          return options;
        }()) {
    for (int i = 1; i <= settings.workers; ++i) {
      Join(uint64_t(i), pb::ROLE_PREFILL);
      Join(uint64_t(1000000 + i), pb::ROLE_DECODE);
    }
    for (int i = 1; i <= settings.workers; ++i) Do(WorkerHeartbeat{uint64_t(i), Report(true)});
  }

  void Ask(uint64_t call, int prompt, int first_token) {
    Submit submit{.call = call, .request_id = absl::StrCat(call), .sequence = {}, .received = now_};
    for (int i = 0; i < prompt; ++i) submit.sequence.add_tokens(first_token + i);
    submit.sequence.set_num_prompt_tokens(prompt);
    submit.sequence.mutable_sampling()->set_max_tokens(settings_.tokens);
    submit.sequence.mutable_sampling()->set_n(1);
    Do(std::move(submit));
    Work();
  }

  size_t ended() const { return ended_; }
  size_t tokens() const { return tokens_; }
  const RouterCore& core() const { return core_; }

 private:
  pb::WorkerReport Report(bool prefill) {
    pb::WorkerReport report;
    for (int j = 1; prefill && j <= settings_.workers; ++j) {
      pb::PairStatus& pair = *report.add_pairs();
      pair.set_decode_incarnation(uint64_t(1000000 + j));
      pair.set_up(true);
    }
    report.set_sequence(++reports_);
    report.set_blocks_free(1000000);
    return report;
  }

  void Join(uint64_t incarnation, pb::Role role) {
    pb::WorkerInfo info;
    info.set_role(role);
    info.set_incarnation(incarnation);
    info.mutable_fingerprint()->set_block_size(16);
    info.mutable_fingerprint()->set_protocol_version(kProtocolVersion);
    info.mutable_work()->set_host("h");
    info.mutable_work()->set_port(int(incarnation % 60000));
    info.set_blocks_total(1000000);
    info.set_max_running(256);
    info.set_max_step_tokens(8192);
    info.set_context_length(1 << 20);
    Do(WorkerAnnounced{incarnation, info});
    pb::WorkerHello hello;
    hello.set_worker_incarnation(incarnation);
    Do(LinkUp{links_.at(incarnation), hello});
  }

  void Do(Event event) {
    for (Action& action : core_.Handle(std::move(event), now_ += absl::Nanoseconds(100))) {
      if (auto* connect = std::get_if<ConnectWorker>(&action)) {
        links_[connect->incarnation] = connect->link;
      } else if (auto* send = std::get_if<SendToWorker>(&action)) {
        inbox_.push_back(std::move(*send));
      } else if (auto* tokens = std::get_if<ClientTokens>(&action)) {
        tokens_ += size_t(tokens->tokens.token_ids_size());
      } else if (auto* end = std::get_if<ClientEnd>(&action)) {
        ++ended_;
        if (!end->status.ok()) std::fprintf(stderr, "%s\n", end->status.ToString().c_str());
      }
    }
  }

  void Say(uint64_t link, pb::WorkerMessage message, bool prefill) {
    *message.mutable_report() = Report(prefill);
    Do(WorkerBatch{link, std::move(message)});
  }

  void Work() {
    while (!inbox_.empty()) {
      const SendToWorker sent = std::move(inbox_.front());
      inbox_.pop_front();
      if (sent.message.has_reserve()) OnReserve(sent);
      if (sent.message.has_prefill()) OnPrefill(sent);
    }
  }

  void OnReserve(const SendToWorker& sent) {
    pb::WorkerMessage message;
    pb::WorkerEvent& event = *message.add_events();
    *event.mutable_key() = sent.message.reserve().key();
    event.mutable_lease_granted()->set_lease_id(++leases_);
    event.mutable_lease_granted()->set_lease_ms(1 << 30);
    decode_link_ = sent.link;
    Say(sent.link, std::move(message), false);
  }

  void OnPrefill(const SendToWorker& sent) {
    const pb::RequestKey& key = sent.message.prefill().key();
    pb::WorkerMessage first;
    pb::WorkerEvent& token = *first.add_events();
    *token.mutable_key() = key;
    token.mutable_tokens()->add_token_ids(1);
    Say(sent.link, std::move(first), true);
    for (int i = 1; i < settings_.tokens; ++i) {
      pb::WorkerMessage step;
      if (i == 1) {
        pb::WorkerEvent& committed = *step.add_events();
        *committed.mutable_key() = key;
        committed.mutable_committed()->set_lease_id(sent.message.prefill().lease().lease_id());
      }
      pb::WorkerEvent& next = *step.add_events();
      *next.mutable_key() = key;
      next.mutable_tokens()->set_first_index(i);
      next.mutable_tokens()->add_token_ids(1);
      if (i + 1 == settings_.tokens) {
        pb::WorkerEvent& finished = *step.add_events();
        *finished.mutable_key() = key;
        finished.mutable_finished()->set_reason(pb::FINISH_REASON_LENGTH);
        finished.mutable_finished()->set_last(true);
      }
      Say(decode_link_, std::move(step), false);
    }
    pb::WorkerMessage done;
    pb::WorkerEvent& transfer = *done.add_events();
    *transfer.mutable_key() = key;
    transfer.mutable_progress()->add_events()->set_name("transfer_done");
    Say(sent.link, std::move(done), true);
  }

  const Settings settings_;
  RouterCore core_;
  absl::Time now_ = absl::UnixEpoch();
  std::map<uint64_t, uint64_t> links_;
  std::deque<SendToWorker> inbox_;
  uint64_t decode_link_ = 0, leases_ = 0, reports_ = 0;
  size_t ended_ = 0, tokens_ = 0;
};

double PerRequestUs(Settings settings, int tokens, Policy policy) {
  settings.tokens = tokens;
  Cluster cluster(settings, policy);
  const double began = CpuSeconds();
  for (int i = 1; i <= settings.requests; ++i) cluster.Ask(uint64_t(i), 256, i * 256);
  const double seconds = CpuSeconds() - began;
  if (cluster.ended() != size_t(settings.requests)) std::fprintf(stderr, "%zu ended\n", cluster.ended());
  return 1e6 * seconds / settings.requests;
}

// Each with ten blocks of its own, stored one after the other at one worker.
void Prefixes(const Settings& settings, std::string& json) {
  PrefixIndex index{size_t(settings.entries)};
  const double before = ResidentMiB();
  const double began = CpuSeconds();
  pb::PrefixEvents cleared;
  cleared.add_events()->set_kind(pb::PrefixEvent::CLEARED);
  index.Apply(7, cleared);
  double at_half = 0;
  uint64_t number = 1;
  for (int i = 0; i < settings.prefixes; ++i) {
    std::vector<int32_t> tokens(160, i);
    const std::vector<engine::BlockHash> names = engine::HashBlocks(engine::RootHash("", "", "x", ""), tokens, 16);
    pb::PrefixEvents events;
    pb::PrefixEvent& event = *events.add_events();
    event.set_kind(pb::PrefixEvent::STORED);
    event.set_sequence(number);
    for (const engine::BlockHash& name : names) event.mutable_block_names()->append(name.Bytes());
    number += names.size();
    index.Apply(7, events);
    if (i == settings.prefixes / 2) at_half = ResidentMiB();
  }
  absl::StrAppend(&json, ",\"prefixes\":", settings.prefixes, ",\"prefix_entries\":", index.entries(),
                  ",\"prefix_limit\":", settings.entries, ",\"index_mib_half\":", at_half - before,
                  ",\"index_mib\":", ResidentMiB() - before,
                  ",\"us_per_prefix_of_10_blocks\":", 1e6 * (CpuSeconds() - began) / settings.prefixes);
}

int Main(int argc, char** argv) {
  Settings settings;
  const std::map<std::string, int*> flags = {{"--requests", &settings.requests},
                                             {"--tokens", &settings.tokens},
                                             {"--workers", &settings.workers},
                                             {"--prefixes", &settings.prefixes},
                                             {"--entries", &settings.entries}};
  for (int i = 1; i < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end() || i + 1 >= argc || !absl::SimpleAtoi(argv[i + 1], flag->second) || *flag->second < 1) {
      std::fprintf(stderr,
                   "usage: core_bench [--requests N] [--tokens T] [--workers W] [--prefixes P] [--entries E]\n");
      return std::strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }
  std::string json = absl::StrCat("{\"workers_of_each_role\":", settings.workers);
  for (Policy policy : {Policy::kSlo, Policy::kLeastLoaded, Policy::kRoundRobin}) {
    const double two = PerRequestUs(settings, 2, policy);
    const double many = PerRequestUs(settings, settings.tokens, policy);
    absl::StrAppend(&json, ",\"", PolicyName(policy), "\":{\"us_per_request_of_2_tokens\":", two,
                    ",\"us_per_token\":", (many - two) / (settings.tokens - 2), "}");
  }
  Prefixes(settings, json);
  std::printf("%s}\n", json.c_str());
  return 0;
}

}  // namespace
}  // namespace sluice::router

int main(int argc, char** argv) {
  return sluice::router::Main(argc, argv);
}
