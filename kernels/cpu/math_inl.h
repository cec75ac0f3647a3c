// exp and the functions made of it, on sixteen lanes. No libm: the same bits on every machine.
#pragma once

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// e^x within 2 ulp (math_test.cc); exactly 1 at 0; exactly 0 below -87.3 (where results would be subnormal), so a
// masked score of -inf has weight 0; saturates at e^88.3. Cody-Waite reduction to |r| <= ln2 / 2, then the Taylor
// polynomial of degree 7 (its truncation is below 1/10 ulp there).
template <class S>
SLUICE_INLINE typename S::F Exp(typename S::F x) {
  using F = typename S::F;
  const F lowest = S::Set1(-87.33654f);
  const F clamped = S::Min(S::Max(x, lowest), S::Set1(88.3762589f));
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
  const F magic = S::Set1(12582912.0f);
  const F n = S::Sub(S::Fma(clamped, S::Set1(1.44269504f), magic), magic);
  F r = S::Fma(n, S::Set1(-0.693359375f), clamped);
  r = S::Fma(n, S::Set1(2.12194440e-4f), r);
  F p = S::Set1(1.0f / 5040);
  p = S::Fma(p, r, S::Set1(1.0f / 720));
  p = S::Fma(p, r, S::Set1(1.0f / 120));
  p = S::Fma(p, r, S::Set1(1.0f / 24));
  p = S::Fma(p, r, S::Set1(1.0f / 6));
  p = S::Fma(p, r, S::Set1(0.5f));
  p = S::Fma(p, r, S::Set1(1.0f));
  p = S::Fma(p, r, S::Set1(1.0f));
  return S::KeepWhereGe(S::ScaleByPow2(p, n), x, lowest);
}

// x / (1 + e^-x)
template <class S>
struct Silu {
  static SLUICE_INLINE typename S::F Of(typename S::F x) {
    const auto e = Exp<S>(S::Sub(S::Zero(), x));
    return S::Div(x, S::Add(S::Set1(1.0f), e));
  }
};

// x/2 (1 + tanh(y)) with y = sqrt(2/pi) (x + 0.044715 x³); as 1 + tanh(y) = 2 - 2 / (e^2y + 1).
template <class S>
struct GeluTanh {
  static SLUICE_INLINE typename S::F Of(typename S::F x) {
    const auto x2 = S::Mul(x, x);
    const auto inner = S::Mul(x, S::Fma(x2, S::Set1(0.044715f), S::Set1(1.0f)));
    const auto e = Exp<S>(S::Mul(inner, S::Set1(2 * 0.797884561f)));
    const auto one = S::Set1(1.0f);
    return S::Mul(x, S::Sub(one, S::Div(one, S::Add(e, one))));
  }
};

// gate[i] = act(gate[i]) * up[i]
template <class S, class Act>
void ActMul(float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) S::Store(gate + i, S::Mul(Act::Of(S::Load(gate + i)), S::Load(up + i)));
  if (i < n) {
    const int rest = int(n - i);
    S::StorePartial(gate + i, S::Mul(Act::Of(S::LoadPartial(gate + i, rest)), S::LoadPartial(up + i, rest)), rest);
  }
}

template <class S>
void ExpArray(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const int rest = n - i < 16 ? int(n - i) : 16;
    if (rest == 16) {
      S::Store(out + i, Exp<S>(S::Load(x + i)));
    } else {
      S::StorePartial(out + i, Exp<S>(S::LoadPartial(x + i, rest)), rest);
    }
  }
}

}  // namespace sluice::kernels::cpu
