// native mode (native_table.h) as the fused context multiplies.
#pragma once

#include <memory>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/native/native_table.h"
#include "kernels/cpu/products.h"

namespace sluice::kernels::cpu {

std::unique_ptr<const Products> NewNativeProducts(const KernelTable& floats, const NativeTable& kernels);

}  // namespace sluice::kernels::cpu
