// Reductions in the order of the ranks, so that every rank gets the same bits whatever came first.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace host_cuda::nccl {

bool CanReduce(ncclDataType_t type, ncclRedOp_t op);

// out[i] = in[0][i] op in[1][i] ...; bf16 and f16 are added up in float and rounded once. out may be one of in.
void Reduce(void* out, const std::vector<const void*>& in, size_t count, ncclDataType_t type, ncclRedOp_t op);

// out[i] = in[i] * *factor, in the type of both.
void Scale(void* out, const void* in, size_t count, ncclDataType_t type, const void* factor);

}  // namespace host_cuda::nccl
