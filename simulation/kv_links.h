// The control links between prefill and decode workers: dialled by P for each D that the router told it of, dialled
// again after a loss, and lost at its two ends at different moments. A pair is what P's report says it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/worker.pb.h"
#include "simulation/kv_message.h"
#include "simulation/model_worker.h"
#include "simulation/network.h"

namespace sluice::simulation {

class KvLinks {
 public:
  // A worker process that lives, and the machine that it lives on.
  struct Process {
    ModelWorker* worker = nullptr;
    Network::Node node = 0;
  };
  using Find = std::function<Process(uint64_t incarnation)>;
  using Changed = std::function<void(ModelWorker& prefill)>;  // a pair of it came up, went down or was refused

  KvLinks(Network& network, Schedule& schedule, Rng& rng, Find find, Changed changed)
      : network_(network), schedule_(schedule), rng_(rng), find_(std::move(find)), changed_(std::move(changed)) {}

  // All decode workers that P is to pair with: incarnation and machine.
  void SetPeers(uint64_t prefill, const std::vector<std::pair<uint64_t, Network::Node>>& decodes);
  void Send(const ModelWorker& from, uint64_t to, KvMessage message);
  bool Paired(const ModelWorker& one, uint64_t other) const;  // as `one` knows it
  const google::protobuf::RepeatedPtrField<pb::PairStatus>& Of(uint64_t prefill);
  void Forget(uint64_t incarnation);  // its process has died, or knows nothing more
  bool Cut(uint64_t prefill, uint64_t decode);

  int64_t made() const { return made_; }
  int64_t lost() const { return lost_; }

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // prefill, decode
  struct Pair {
    Network::Node decode_node = 0;
    uint64_t at_prefill = 0;  // connection; 0: none
    uint64_t at_decode = 0;
    bool up = false;  // as P knows it
    bool refused = false;
    absl::Duration backoff = absl::Milliseconds(50);
  };

  void Dial(Key key);
  void OnHello(Key key, uint64_t connection);
  void LostAtPrefill(Key key, uint64_t connection);
  void LostAtDecode(Key key, uint64_t connection);

  Network& network_;
  Schedule& schedule_;
  Rng& rng_;
  const Find find_;
  const Changed changed_;
  std::map<Key, Pair> pairs_;
  // As the prefill workers report them, where nothing has changed since.
  absl::flat_hash_map<uint64_t, google::protobuf::RepeatedPtrField<pb::PairStatus>> reported_;
  // Ends at decode workers of pairs whose prefill worker has died or dropped them.
  absl::flat_hash_map<uint64_t, Key> orphans_;
  int64_t made_ = 0;
  int64_t lost_ = 0;
};

}  // namespace sluice::simulation
