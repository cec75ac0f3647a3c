#include "worker/host_kv.h"

namespace sluice::worker {

kvtransfer::HostKv HostKvOf(engine::Engine& engine) {
  return {.layout = engine.kv_layout(),
          .first_head = 0,
          .num_blocks = engine.stats().blocks_total,
          .layer_data = [&engine](int layer) { return static_cast<std::byte*>(engine.kv_layer_data(layer)); }};
}

}  // namespace sluice::worker
