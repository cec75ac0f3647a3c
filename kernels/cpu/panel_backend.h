// A backend of fused phases (fused_context.h) for one way to multiply (products.h) and one to keep K and V
// (paged_kv.h).
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/fused_context.h"
#include "kernels/cpu/products.h"

namespace sluice::kernels::cpu {

std::unique_ptr<Backend> NewPanelBackend(std::unique_ptr<const Products> products, const FusedKernels& kernels,
                                         KvDType kv_dtype, int threads);

}  // namespace sluice::kernels::cpu
