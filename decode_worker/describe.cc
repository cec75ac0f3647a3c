#include "decode_worker/describe.h"

namespace sluice::decode_worker {

worker::RoleDescription Describe() {
  return {.program = "sluice_decode",
          .summary =
              "Decodes: takes over prompts that prefill workers computed, and streams their tokens to the routers it "
              "announces itself to. With --role both it computes prompts itself.",
          .roles = {"both", "decode"}};
}

}  // namespace sluice::decode_worker
