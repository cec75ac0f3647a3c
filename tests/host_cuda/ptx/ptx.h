// What translated code includes.
#pragma once

#include "tests/host_cuda/engine/barrier.h"
#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/engine/warp.h"
#include "tests/host_cuda/ptx/address_space.h"
#include "tests/host_cuda/ptx/arithmetic.h"
#include "tests/host_cuda/ptx/async.h"
#include "tests/host_cuda/ptx/atomics.h"
#include "tests/host_cuda/ptx/bits.h"
#include "tests/host_cuda/ptx/calls.h"
#include "tests/host_cuda/ptx/convert.h"
#include "tests/host_cuda/ptx/heap.h"
#include "tests/host_cuda/ptx/matrix.h"
#include "tests/host_cuda/ptx/mbarrier.h"
#include "tests/host_cuda/ptx/memory.h"
#include "tests/host_cuda/ptx/mma.h"
#include "tests/host_cuda/ptx/types.h"
