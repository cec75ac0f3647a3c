// The prefill role: computes prompts, streams finished blocks to the decode worker that holds the lease, yields the
// first token and hands the rest over. Pure: no threads, gRPC or clock.
//
//   Prefill --> computing --first token--> handing over --transfer end OK--> over (progress entry `transfer_done`)
//                   |                           |  \--transfer end, error--> Failed
//                   |--the answer is over with its first token--> Finished, leaving
//                   `--stopped--> leaving --transfer end--> its blocks are free
//   Prefill without a lease --> one token, Finished
//   Reserve(compute_prompt) --> the whole answer, Finished: where no decode worker is alive
//
// Promises: a block is sent only when its KV is final; the Commit follows the last block and the first token; a block
// is freed only after the transfer's end. The first token never waits for the transfer: what a step has finished is
// sent when the step's tokens are on their way, but for the last chunk of a prompt, which leaves layer by layer while
// the step runs (in groups of layers, so that it costs the step next to nothing); what is left of it, and the Commit,
// follow the tokens. The transfer opens with the first chunk: until then the engine may still find a longer prefix in
// its cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/kv_layout.h"
#include "kvtransfer/sender.h"
#include "prefill_worker/kv_outbox.h"
#include "worker/engine_port.h"
#include "worker/request_table.h"
#include "worker/role.h"
#include "worker/whole_answers.h"

namespace sluice::prefill_worker {

class PrefillRole final : public worker::Role {
 public:
  // All outlive the role.
  PrefillRole(const kernels::KvLayout& layout, worker::EnginePort& engine, worker::RequestTable& requests,
              KvOutbox& outbox);

  std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                     v1::LeaseGranted& granted) override;
  std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Prefill& prefill, engine::EngineRequest request) override;
  void OnPlanned(engine::StepWork& step) override;
  void OnStep(const std::vector<engine::TokenOutput>& outputs, const std::vector<engine::SequenceProgress>& progress,
              absl::Time now) override;
  void AfterStep() override;
  bool Stop(uint64_t id, const v1::ErrorInfo& why) override;

  // The decode worker has this much of the transfer.
  void OnAcked(TransferId transfer, int64_t bytes, absl::Time at);

  // The end that KvOutbox::Open promised.
  void OnTransferEnd(TransferId transfer, const kvtransfer::Sender::End& end, absl::Time at);

 private:
  enum class State { kComputing, kHandingOver, kLeaving };
  // Of a prompt's last chunk: what goes while the step runs. Shared with the thread that executes it; the end of the
  // step orders the two.
  struct LastChunk {
    TransferId transfer;
    int from = 0, to = 0;  // blocks
    int group = 1;         // layers that go at once
    int layers_sent = 0;
  };
  struct Job {
    State state = State::kComputing;
    std::optional<TransferId> transfer;
    v1::RequestKey key;
    bool opened = false;                    // the transfer
    int tokens = 0;                         // to compute
    v1::Commit commit;                      // the first tokens so far
    int open_choices = 0;                   // without a first token yet
    bool goes_on = false;                   // at least one of them
    int sent_blocks = 0;                    // of the list; those that the decode worker has already count as sent
    std::shared_ptr<LastChunk> last_chunk;  // from its planning to its end
    absl::Time computed_at;
  };

  std::optional<v1::ErrorInfo> CheckHandOver(const v1::Prefill& prefill, const engine::EngineRequest& request) const;
  void Open(uint64_t id, Job& job);
  void OpenNow(uint64_t id, Job& job);
  void SendBlocks(Job& job, int computed);
  void SendRest(Job& job);
  void OrderAfterStep(std::function<void()> order) { orders_.push_back(std::move(order)); }
  void OnFirstToken(const engine::TokenOutput& output, absl::Time now);
  void HandOver(uint64_t id, Job& job, absl::Time now);
  void Drop(uint64_t id);  // frees the blocks

  const kernels::KvLayout layout_;
  const int block_size_;
  worker::EnginePort& engine_;
  worker::RequestTable& requests_;
  KvOutbox& outbox_;
  worker::WholeAnswers whole_;
  std::unordered_map<uint64_t, Job> jobs_;
  std::map<TransferId, uint64_t> by_transfer_;
  std::vector<std::function<void()>> orders_;  // of the last step to the outbox
};

}  // namespace sluice::prefill_worker
