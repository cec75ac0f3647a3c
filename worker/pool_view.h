// An engine's KV pool as the transfer sees it: where the engine and kvtransfer/ meet.
#pragma once

#include "engine/engine.h"
#include "kvtransfer/piece_copy.h"

namespace sluice::worker {

// `all_ranks`: the pools of all ranks as one, where each has its own; null: the engine's is all there is. Both must
// outlive the view.
kvtransfer::PoolView PoolViewOf(engine::Engine& engine, kernels::DeviceKv* all_ranks = nullptr);

}  // namespace sluice::worker
