// What sluice_prefill offers on its command line.
#pragma once

#include "worker/options.h"

namespace sluice::prefill_worker {

worker::RoleDescription Describe();

}  // namespace sluice::prefill_worker
