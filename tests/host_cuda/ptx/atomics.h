// atom and red: one compare-and-swap loop for every operation and type.
#pragma once

#include "tests/host_cuda/ptx/arithmetic.h"
#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

enum class AtomicOp { kAdd, kMin, kMax, kAnd, kOr, kXor, kInc, kDec, kExchange };

template <AtomicOp kOp, class T>
inline T AtomicResult(T old, T operand) {
  if constexpr (kOp == AtomicOp::kExchange) {
    return operand;
  } else if constexpr (kOp == AtomicOp::kAdd) {
    return Add(old, operand);
  } else if constexpr (kOp == AtomicOp::kMin) {
    return Min(old, operand);
  } else if constexpr (kOp == AtomicOp::kMax) {
    return Max(old, operand);
  } else if constexpr (kOp == AtomicOp::kAnd) {
    return old & operand;
  } else if constexpr (kOp == AtomicOp::kOr) {
    return old | operand;
  } else if constexpr (kOp == AtomicOp::kXor) {
    return old ^ operand;
  } else if constexpr (kOp == AtomicOp::kInc) {
    return old >= operand ? T{0} : static_cast<T>(old + 1);
  } else {
    return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
  }
}

// The old value.
template <class T, Space kSpace, class Change>
inline T AtomicUpdate(SharedWindow window, u64 address, Ordering ordering, Change change, Loc where) {
  CheckAddress<kSpace>(window, address, sizeof(T), where);
  auto* const word = reinterpret_cast<Bits<T>*>(address);
  BeforeStore(word, ordering);
  Bits<T> old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, As<Bits<T>>(change(As<T>(old))), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  AfterLoad(word, ordering, where);
  return As<T>(old);
}

template <AtomicOp kOp, class T, Space kSpace>
HOST_CUDA_CALLED T Atomic(SharedWindow window, u64 address, T operand, Ordering ordering, Loc where = Loc::current()) {
  return AtomicUpdate<T, kSpace>(
      window, address, ordering, [&](T old) { return AtomicResult<kOp>(old, operand); }, where);
}

template <class T, Space kSpace>
HOST_CUDA_CALLED T AtomicCas(SharedWindow window, u64 address, T expected, T desired, Ordering ordering,
                             Loc where = Loc::current()) {
  return AtomicUpdate<T, kSpace>(
      window, address, ordering, [&](T old) { return old == expected ? desired : old; }, where);
}

}  // namespace host_cuda::ptx
