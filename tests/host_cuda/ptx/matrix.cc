#include "tests/host_cuda/ptx/matrix.h"

#include <algorithm>
#include <type_traits>

#include "tests/host_cuda/ptx/convert.h"

namespace host_cuda::ptx {
namespace {

constexpr uint32_t kFullWarp = ~0u;
constexpr int kM = 16, kN = 8, kMaxK = 32;

struct MmaSlot {
  const MmaTile* tile;
  const u32 *a, *b, *c;
  u32* d;
};

constexpr int ElementsPerWord(Element element) {
  switch (element) {
    case Element::kTf32:
      return 1;
    case Element::kF16:
    case Element::kBf16:
      return 2;
    default:
      return 4;
  }
}

// Integers up to 8 bits are exact in float, and so are sums of 32 of their products.
template <Element kElement>
float Decode(u32 word, int i) {
  if constexpr (kElement == Element::kF16) {
    return HalfFormat::Decode(word >> (16 * i) & 0xffff);
  } else if constexpr (kElement == Element::kBf16) {
    return std::bit_cast<float>(word >> (16 * i) << 16);
  } else if constexpr (kElement == Element::kTf32) {
    return std::bit_cast<float>(word & ~0x1fffu);
  } else if constexpr (kElement == Element::kE4m3) {
    return E4m3Format::Decode(word >> (8 * i) & 255);
  } else if constexpr (kElement == Element::kE5m2) {
    return E5m2Format::Decode(word >> (8 * i) & 255);
  } else if constexpr (kElement == Element::kS8) {
    return static_cast<s8>(word >> (8 * i));
  } else {
    return static_cast<u8>(word >> (8 * i));
  }
}

struct Tiles {
  float a[kM][kMaxK];
  float b[kMaxK][kN];
  float c[kM][kN];
};

MmaSlot& SlotOf(const Meeting& meeting, int lane) {
  return *static_cast<MmaSlot*>(meeting.slot[lane]);
}

// Calls f with the element as a constant.
template <class F>
void WithElement(Element element, F f) {
  switch (element) {
    case Element::kF16:
      return f(std::integral_constant<Element, Element::kF16>());
    case Element::kBf16:
      return f(std::integral_constant<Element, Element::kBf16>());
    case Element::kTf32:
      return f(std::integral_constant<Element, Element::kTf32>());
    case Element::kE4m3:
      return f(std::integral_constant<Element, Element::kE4m3>());
    case Element::kE5m2:
      return f(std::integral_constant<Element, Element::kE5m2>());
    case Element::kS8:
      return f(std::integral_constant<Element, Element::kS8>());
    case Element::kU8:
      return f(std::integral_constant<Element, Element::kU8>());
  }
}

template <Element kElement>
void GatherA(const Meeting& meeting, int k, Tiles& tiles) {
  constexpr int kPerWord = ElementsPerWord(kElement);
  for (int lane = 0; lane < 32; ++lane) {
    const u32* const a = SlotOf(meeting, lane).a;
    for (int r = 0; r < k / kPerWord / 2; ++r) {
      float* const at = &tiles.a[lane / 4 + r % 2 * 8][(lane % 4 + r / 2 * 4) * kPerWord];
      for (int i = 0; i < kPerWord; ++i) at[i] = Decode<kElement>(a[r], i);
    }
  }
}

template <Element kElement>
void GatherB(const Meeting& meeting, int k, Tiles& tiles) {
  constexpr int kPerWord = ElementsPerWord(kElement);
  for (int lane = 0; lane < 32; ++lane) {
    const u32* const b = SlotOf(meeting, lane).b;
    for (int r = 0; r < k / kPerWord / 4; ++r) {
      for (int i = 0; i < kPerWord; ++i)
        tiles.b[(lane % 4 + 4 * r) * kPerWord + i][lane / 4] = Decode<kElement>(b[r], i);
    }
  }
}

int RowOf(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
int ColumnOf(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

void MultiplyFloats(const Meeting& meeting, const MmaTile& tile, Tiles& tiles) {
  for (int lane = 0; lane < 32; ++lane) {
    const MmaSlot& slot = SlotOf(meeting, lane);
    for (int i = 0; i < 4; ++i) {
      float& c = tiles.c[RowOf(lane, i)][ColumnOf(lane, i)];
      c = tile.half_accumulator ? HalfFormat::Decode(slot.c[i / 2] >> (16 * (i % 2)) & 0xffff)
                                : std::bit_cast<float>(slot.c[i]);
    }
  }
  for (int row = 0; row < kM; ++row) {
    float sum[kN];
    std::copy_n(tiles.c[row], kN, sum);
    for (int k = 0; k < tile.k; ++k) {
      const float a = tiles.a[row][k];
      for (int column = 0; column < kN; ++column) sum[column] += a * tiles.b[k][column];
    }
    std::copy_n(sum, kN, tiles.c[row]);
  }
  for (int lane = 0; lane < 32; ++lane) {
    u32* const d = SlotOf(meeting, lane).d;
    u32 out[4];
    for (int i = 0; i < 4; ++i) {
      const float c = tiles.c[RowOf(lane, i)][ColumnOf(lane, i)];
      out[i] = tile.half_accumulator ? HalfFormat::Encode(c) : std::bit_cast<u32>(c);
    }
    if (tile.half_accumulator) {
      d[0] = out[0] | out[1] << 16;
      d[1] = out[2] | out[3] << 16;
    } else {
      std::copy_n(out, 4, d);
    }
  }
}

void MultiplyIntegers(const Meeting& meeting, const MmaTile& tile, const Tiles& tiles) {
  for (int lane = 0; lane < 32; ++lane) {
    const MmaSlot& slot = SlotOf(meeting, lane);
    u32 out[4];
    for (int i = 0; i < 4; ++i) {
      float sum = 0;
      for (int k = 0; k < tile.k; ++k) sum += tiles.a[RowOf(lane, i)][k] * tiles.b[k][ColumnOf(lane, i)];
      const int64_t total = int64_t{static_cast<s32>(slot.c[i])} + static_cast<int64_t>(sum);
      out[i] = static_cast<u32>(tile.saturate ? std::clamp<int64_t>(total, INT32_MIN, INT32_MAX) : total);
    }
    std::copy_n(out, 4, slot.d);
  }
}

void FinishMma(Meeting& meeting) {
  const MmaTile& tile = *SlotOf(meeting, 0).tile;
  Tiles tiles;
  WithElement(tile.a, [&](auto element) { GatherA<element.value>(meeting, tile.k, tiles); });
  WithElement(tile.b, [&](auto element) { GatherB<element.value>(meeting, tile.k, tiles); });
  if (tile.a == Element::kS8 || tile.a == Element::kU8) {
    MultiplyIntegers(meeting, tile, tiles);
  } else {
    MultiplyFloats(meeting, tile, tiles);
  }
}

void NeedFullWarp(const char* operation, const Loc& where) {
  if (Self().warp->alive == kFullWarp) return;
  Fail(where, "%s needs all lanes of the warp; those of mask %08x are there", operation, Self().warp->alive);
}

struct RowsSlot {
  std::array<u32, 4>* row;
  u32* words;
  int matrices;
  bool transpose;
};

RowsSlot& RowsOf(const Meeting& meeting, int lane) {
  return *static_cast<RowsSlot*>(meeting.slot[lane]);
}

u32 HalfAt(const Meeting& meeting, int matrix, int row, int column) {
  return (*RowsOf(meeting, 8 * matrix + row).row)[column / 2] >> (16 * (column % 2)) & 0xffff;
}

}  // namespace

void Mma(const MmaTile& tile, u32* d, const u32* a, const u32* b, const u32* c, const Loc& where) {
  NeedFullWarp("mma.sync", where);
  MmaSlot slot{&tile, a, b, c, d};
  Meet(kFullWarp, "mma.sync", &slot, FinishMma, where);
}

void ExchangeRows(const std::array<u32, 4>* row, int matrices, bool transpose, u32* out, const Loc& where) {
  NeedFullWarp("ldmatrix", where);
  std::array<u32, 4> copy = *row;
  RowsSlot slot{&copy, out, matrices, transpose};
  Meet(
      kFullWarp, "ldmatrix", &slot,
      [](Meeting& meeting) {
        for (int lane = 0; lane < 32; ++lane) {
          const RowsSlot& own = RowsOf(meeting, lane);
          const int g = lane / 4, t = lane % 4;
          for (int m = 0; m < own.matrices; ++m) {
            own.words[m] = own.transpose ? HalfAt(meeting, m, 2 * t, g) | HalfAt(meeting, m, 2 * t + 1, g) << 16
                                         : HalfAt(meeting, m, g, 2 * t) | HalfAt(meeting, m, g, 2 * t + 1) << 16;
          }
        }
      },
      where);
}

void CollectRows(const u32* in, int matrices, bool transpose, std::array<u32, 4>* row, const Loc& where) {
  NeedFullWarp("stmatrix", where);
  u32 words[4] = {};
  std::copy_n(in, matrices, words);
  RowsSlot slot{row, words, matrices, transpose};
  Meet(
      kFullWarp, "stmatrix", &slot,
      [](Meeting& meeting) {
        const RowsSlot& first = RowsOf(meeting, 0);
        for (int m = 0; m < first.matrices; ++m) {
          for (int r = 0; r < 8; ++r) {
            for (int c = 0; c < 8; ++c) {
              // Element (g, 2t + i) of the fragment, or of its transpose.
              const int g = first.transpose ? c : r, at = first.transpose ? r : c;
              const u32 half = RowsOf(meeting, 4 * g + at / 2).words[m] >> (16 * (at % 2)) & 0xffff;
              u32& word = (*RowsOf(meeting, 8 * m + r).row)[c / 2];
              word = c % 2 == 0 ? half : (word & 0xffff) | half << 16;
            }
          }
        }
      },
      where);
}

}  // namespace host_cuda::ptx
