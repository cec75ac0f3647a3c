// int8 mode (int8_table.h) as the fused context multiplies.
#pragma once

#include <memory>

#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/products.h"

namespace sluice::kernels::cpu {

std::unique_ptr<const Products> NewInt8Products(const KernelTable& floats, const Int8Table& kernels);

}  // namespace sluice::kernels::cpu
