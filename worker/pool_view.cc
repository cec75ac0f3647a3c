#include "worker/pool_view.h"

namespace sluice::worker {

kvtransfer::PoolView PoolViewOf(engine::Engine& engine, kernels::DeviceKv* all_ranks) {
  return {.layout = engine.kv_layout(),
          .first_head = 0,
          .num_blocks = engine.stats().blocks_total,
          .layer_data = [&engine](int layer) { return static_cast<std::byte*>(engine.kv_layer_data(layer)); },
          .device = all_ranks != nullptr ? all_ranks : engine.kv_device()};
}

}  // namespace sluice::worker
