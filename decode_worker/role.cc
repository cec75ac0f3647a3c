#include "decode_worker/role.h"

namespace sluice::decode_worker {

worker::RoleDescription Describe() {
  return {.program = "sluice_decode",
          .summary = "Serves a model: computes prompts and streams tokens for the routers it announces itself to.",
          .roles = {"both", "decode"}};
}

}  // namespace sluice::decode_worker
