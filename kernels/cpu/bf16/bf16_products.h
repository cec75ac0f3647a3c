// bf16 mode (bf16_table.h) as the fused context multiplies.
#pragma once

#include <memory>

#include "kernels/cpu/bf16/bf16_table.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/products.h"

namespace sluice::kernels::cpu {

std::unique_ptr<const Products> NewBf16Products(const KernelTable& floats, const Bf16Table& kernels);

}  // namespace sluice::kernels::cpu
