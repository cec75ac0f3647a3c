#include "prefill_worker/describe.h"

namespace sluice::prefill_worker {

worker::RoleDescription Describe() {
  return {.program = "sluice_prefill",
          .summary =
              "Computes prompts: streams their KV to decode workers and their first tokens to the routers it "
              "announces itself to.",
          .roles = {"prefill"},
          // A step cannot be interrupted, so a cancel waits for the one under way and perhaps for one more: short steps
          // keep the two seconds that it has, on a slow core too. Steps twice as long are a tenth faster on a CPU.
          // Finished chunks are on their way while the next one is computed: what is left for the end is one chunk.
          .max_step_tokens = 64,
          .takes_faults = true,
          .section = "prefill"};
}

}  // namespace sluice::prefill_worker
