// An engine's KV pool as the transfer sees it: where the engine and kvtransfer/ meet.
#pragma once

#include "engine/engine.h"
#include "kvtransfer/piece_copy.h"

namespace sluice::worker {

// REQUIRES: a backend whose memory is the host's. `engine` must outlive the view.
kvtransfer::HostKv HostKvOf(engine::Engine& engine);

}  // namespace sluice::worker
