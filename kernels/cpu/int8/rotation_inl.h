// Applies a Rotation to one row, in place. Adds and subtracts in a fixed order, element by element: the same bits with
// every vector width.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/int8/rotation.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// Entry (i, j) of the Hadamard matrix of order q + 1, for primes q = 3 mod 4 (Paley 1933): I + S with a border of ones
// and the quadratic residues mod q inside.
constexpr bool PaleyIsMinus(int order, int i, int j) {
  const int q = order - 1;
  if (i == 0 || i == j) return false;
  if (j == 0) return true;
  const int difference = ((i - j) % q + q) % q;
  for (int x = 1; x < q; ++x) {
    if (x * x % q == difference) return false;
  }
  return true;
}

template <int kOrder>
struct PaleyPairs {
  // Of row i and the pair of columns (2p, 2p + 1): bit p of `minus` is the sign of the first, of `differ` whether the
  // second has the other sign.
  uint32_t minus[kOrder] = {}, differ[kOrder] = {};
  constexpr PaleyPairs() {
    for (int i = 0; i < kOrder; ++i) {
      for (int p = 0; p < kOrder / 2; ++p) {
        const bool a = PaleyIsMinus(kOrder, i, 2 * p), b = PaleyIsMinus(kOrder, i, 2 * p + 1);
        minus[i] |= uint32_t(a) << p;
        differ[i] |= uint32_t(a != b) << p;
      }
    }
  }
};

template <class S, int kOrder, int kRow, int kPair>
SLUICE_INLINE typename S::F AddPairs(typename S::F sum, const typename S::F* plus, const typename S::F* minus) {
  constexpr PaleyPairs<kOrder> kPairs;
  constexpr bool kDiffer = (kPairs.differ[kRow] >> kPair) & 1, kMinus = (kPairs.minus[kRow] >> kPair) & 1;
  const typename S::F term = kDiffer ? minus[kPair] : plus[kPair];
  sum = kMinus ? S::Sub(sum, term) : S::Add(sum, term);
  if constexpr (kPair + 1 < kOrder / 2) return AddPairs<S, kOrder, kRow, kPair + 1>(sum, plus, minus);
  return sum;
}

// kOrder vectors at p, p + stride, ... The sums and differences of neighbours are shared by all rows of the matrix.
template <class S, int kOrder>
SLUICE_INLINE void PaleyTransform(float* p, int64_t stride) {
  typename S::F plus[kOrder / 2], minus[kOrder / 2];
  SLUICE_UNROLL
  for (int i = 0; i < kOrder / 2; ++i) {
    const auto a = S::Load(p + 2 * i * stride), b = S::Load(p + (2 * i + 1) * stride);
    plus[i] = S::Add(a, b);
    minus[i] = S::Sub(a, b);
  }
  [&]<int... kRows>(std::integer_sequence<int, kRows...>) SLUICE_LAMBDA {
    (S::Store(p + kRows * stride, AddPairs<S, kOrder, kRows, 0>(S::Zero(), plus, minus)), ...);
  }
  (std::make_integer_sequence<int, kOrder>());
}

template <class S, int kOrder>
SLUICE_INLINE void WalshTransform(float* p, int64_t stride) {
  typename S::F v[kOrder];
  SLUICE_UNROLL
  for (int i = 0; i < kOrder; ++i) v[i] = S::Load(p + i * stride);
  SLUICE_UNROLL
  for (int d = 1; d < kOrder; d *= 2) {
    SLUICE_UNROLL
    for (int i = 0; i < kOrder; ++i) {
      if (i & d) continue;
      const auto a = v[i], b = v[i + d];
      v[i] = S::Add(a, b);
      v[i + d] = S::Sub(a, b);
    }
  }
  SLUICE_UNROLL
  for (int i = 0; i < kOrder; ++i) S::Store(p + i * stride, v[i]);
}

template <class S>
SLUICE_INLINE void Reflection(float* p, int64_t stride, int radix) {
  auto sum = S::Load(p);
  for (int i = 1; i < radix; ++i) sum = S::Add(sum, S::Load(p + i * stride));
  sum = S::Mul(sum, S::Set1(2.0f / float(radix)));
  for (int i = 0; i < radix; ++i) S::Store(p + i * stride, S::Sub(S::Load(p + i * stride), sum));
}

template <class S>
SLUICE_INLINE void RunStage(const RotationStage& stage, int64_t vectors, float* x) {
  const int64_t stride = int64_t(stage.stride) * 16, group = stride * stage.radix;
  const auto each = [&](auto transform) SLUICE_LAMBDA {
    for (int64_t outer = 0; outer < vectors * 16; outer += group) {
      for (int64_t inner = 0; inner < stride; inner += 16) transform(x + outer + inner);
    }
  };
  if (!stage.hadamard) {
    each([&](float* p) SLUICE_LAMBDA { Reflection<S>(p, stride, stage.radix); });
  } else if (stage.radix == 12) {
    each([&](float* p) SLUICE_LAMBDA { PaleyTransform<S, 12>(p, stride); });
  } else if (stage.radix == 20) {
    each([&](float* p) SLUICE_LAMBDA { PaleyTransform<S, 20>(p, stride); });
  } else if (stage.radix == 8) {
    each([&](float* p) SLUICE_LAMBDA { WalshTransform<S, 8>(p, stride); });
  } else if (stage.radix == 4) {
    each([&](float* p) SLUICE_LAMBDA { WalshTransform<S, 4>(p, stride); });
  } else {
    each([&](float* p) SLUICE_LAMBDA { WalshTransform<S, 2>(p, stride); });
  }
}

// The signs of the vectors, again from the start after 256 of them: bits of a xorshift generator.
struct RotationSigns {
  static constexpr int kCount = 256;
  uint16_t bits[kCount] = {};
  constexpr RotationSigns() {
    uint32_t state = 2463534242u;  // Marsaglia 2003
    for (uint16_t& b : bits) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      b = uint16_t(state >> 16);
    }
  }
};
inline constexpr RotationSigns kRotationSigns;

// x: [rotation.vectors][16].
template <class S>
void Rotate(const Rotation& rotation, float* x) {
  for (int64_t v = 0; v < rotation.vectors; ++v) {
    auto a = S::FlipSigns(S::Load(x + v * 16), kRotationSigns.bits[v % RotationSigns::kCount]);
    a = S::template Butterfly<1>(a);
    a = S::template Butterfly<2>(a);
    a = S::template Butterfly<4>(a);
    a = S::template Butterfly<8>(a);
    S::Store(x + v * 16, a);
  }
  for (int s = 0; s < rotation.stages; ++s) RunStage<S>(rotation.stage[s], rotation.vectors, x);
}

}  // namespace sluice::kernels::cpu
