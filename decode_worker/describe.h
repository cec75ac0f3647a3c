// What sluice_decode offers on its command line.
#pragma once

#include "worker/options.h"

namespace sluice::decode_worker {

worker::RoleDescription Describe();

}  // namespace sluice::decode_worker
