// The two compiler attributes that the kernels need. Everything in a file compiled for one instruction set is forced
// inline or templated over that set's Simd type, so that no such code can be picked by the linker for another file.
#pragma once

#define SLUICE_INLINE inline __attribute__((always_inline))
#define SLUICE_LAMBDA __attribute__((always_inline))

#if defined(__clang__)
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL _Pragma("GCC unroll 16")
#endif
