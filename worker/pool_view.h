// An engine's KV pool as the transfer sees it: where the engine and kvtransfer/ meet.
#pragma once

#include "engine/engine.h"
#include "kvtransfer/piece_copy.h"

namespace sluice::worker {

// `engine` must outlive the view.
kvtransfer::PoolView PoolViewOf(engine::Engine& engine);

}  // namespace sluice::worker
