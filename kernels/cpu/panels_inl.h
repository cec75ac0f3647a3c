// Loops over panels, and what is done with their products. Loops come with the tiles T of a mode:
//   T::kRows, T::kPanels                 most rows of activations and panels of one
//   T::Tile(x, w, m, rows, p, panels, y) y [rows][kPanels * 16] = rows from m on times panels from p on
// A panel stays in the caches while all rows pass over it.
#pragma once

#include <cstdint>

#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// The results of activation row m and sixteen rows of the matrix from n on, of `rows` in all.
template <class S>
SLUICE_INLINE void Put(const ProductOutput& out, int64_t m, int64_t n, int64_t rows, typename S::F value) {
  float* to = out.y + m * out.ld + n;
  if (n + kPanelRows <= rows) {
    if (out.bias != nullptr) value = S::Add(value, S::Load(out.bias + n));
    S::Store(to, out.accumulate ? S::Add(S::Load(to), value) : value);
    return;
  }
  const int rest = int(rows - n);
  if (out.bias != nullptr) value = S::Add(value, S::LoadPartial(out.bias + n, rest));
  S::StorePartial(to, out.accumulate ? S::Add(S::LoadPartial(to, rest), value) : value, rest);
}

// Likewise h = f(g) * u.
template <class S, class Gate>
SLUICE_INLINE void PutGated(float* h, int64_t ld, int64_t m, int64_t n, int64_t rows, typename S::F g,
                            typename S::F u) {
  const auto value = S::Mul(Gate::Of(g), u);
  float* to = h + m * ld + n;
  if (n + kPanelRows <= rows) {
    S::Store(to, value);
  } else {
    S::StorePartial(to, value, int(rows - n));
  }
}

// fn(m, count) for rows in tiles of nearly equal height: a tile of one row would leave the multipliers idle.
template <int kRows, class Fn>
SLUICE_INLINE void EachRowTile(int64_t rows, Fn fn) {
  const int64_t tiles = (rows + kRows - 1) / kRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t m = rows * t / tiles;
    fn(m, int(rows * (t + 1) / tiles - m));
  }
}

// fn(p, panels) for the panels [begin, end).
template <int kPanels, class Fn>
SLUICE_INLINE void EachPanelTile(int64_t begin, int64_t end, Fn fn) {
  for (int64_t p = begin; p < end; p += kPanels) fn(p, int(end - p < kPanels ? end - p : kPanels));
}

template <class S, class T, class X, class W>
void MultiplyPanels(const X& x, const W& w, const ProductOutput& out, int64_t begin, int64_t end) {
  constexpr int kWidth = T::kPanels * kPanelRows;
  alignas(64) float y[T::kRows * kWidth];
  EachPanelTile<T::kPanels>(begin, end, [&](int64_t p, int panels) {
    EachRowTile<T::kRows>(x.rows, [&](int64_t m, int rows) {
      T::Tile(x, w, m, rows, p, panels, y);
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < panels; ++j) {
          Put<S>(out, m + i, (p + j) * kPanelRows, w.rows, S::Load(y + i * kWidth + j * kPanelRows));
        }
      }
    });
  });
}

template <class S, class T, class Gate, class X, class W>
void GatePanels(const X& x, const W& gate, const W& up, float* h, int64_t ld, int64_t begin, int64_t end) {
  constexpr int kWidth = T::kPanels * kPanelRows;
  alignas(64) float g[T::kRows * kWidth];
  alignas(64) float u[T::kRows * kWidth];
  EachPanelTile<T::kPanels>(begin, end, [&](int64_t p, int panels) {
    EachRowTile<T::kRows>(x.rows, [&](int64_t m, int rows) {
      T::Tile(x, gate, m, rows, p, panels, g);
      T::Tile(x, up, m, rows, p, panels, u);
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < panels; ++j) {
          const int at = i * kWidth + j * kPanelRows;
          PutGated<S, Gate>(h, ld, m + i, (p + j) * kPanelRows, gate.rows, S::Load(g + at), S::Load(u + at));
        }
      }
    });
  });
}

template <class S, class T, class X, class W>
void MultiplyGateUp(const X& x, const W& gate, const W& up, GateFunction f, float* h, int64_t ld, int64_t begin,
                    int64_t end) {
  if (f == GateFunction::kSilu) {
    GatePanels<S, T, Silu<S>>(x, gate, up, h, ld, begin, end);
  } else {
    GatePanels<S, T, GeluTanh<S>>(x, gate, up, h, ld, begin, end);
  }
}

}  // namespace sluice::kernels::cpu
