// The CPU backend in int8 mode: cpu_backend.h chooses it.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/int8/int8_context.h"

namespace sluice::kernels::cpu {

std::unique_ptr<Backend> NewInt8Backend(const Int8Kernels& kernels, int threads);

}  // namespace sluice::kernels::cpu
