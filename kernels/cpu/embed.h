// The embedding phase, alike in all modes: rows of a table as floats.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {

// REQUIRES: p.table is a CpuWeight, p.x a CpuActivation.
void EmbedRows(const EmbedParams& p, const StepBatch& batch, const KernelTable& kernels, ThreadPool& pool);

}  // namespace sluice::kernels::cpu
