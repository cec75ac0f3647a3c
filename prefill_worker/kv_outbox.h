// What the prefill role needs of the transfer: kvtransfer::PrefillEndpoint in a server, a script in tests.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/piece_split.h"
#include "kvtransfer/transfer_id.h"
#include "proto/transfer.pb.h"

namespace sluice::prefill_worker {

using kvtransfer::LayerRange;
using kvtransfer::TransferId;

// The meaning of every call is PrefillEndpoint's. Exactly one end follows an Open (PrefillRole::OnTransferEnd), never
// from inside a call, and until then the blocks may be read. AddBlocks is called by the thread that executes steps,
// too.
class KvOutbox {
 public:
  virtual ~KvOutbox() = default;
  virtual void Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks) = 0;
  virtual void AddBlocks(TransferId id, int begin, int end, LayerRange layers) = 0;
  virtual void Commit(TransferId id, v1::Commit commit) = 0;
  virtual void Cancel(TransferId id, absl::Status why) = 0;
};

}  // namespace sluice::prefill_worker
