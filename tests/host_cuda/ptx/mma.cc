#include "tests/host_cuda/ptx/mma.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/host_cuda/ptx/full_warp.h"

namespace host_cuda::ptx {
namespace {

constexpr int kM = 16, kN = 8, kWords = 8;

struct MmaSlot {
  const MmaTile* tile;
  const u32 *a, *b, *c;
  u32* d;
};

MmaSlot& SlotOf(const Meeting& meeting, int lane) {
  return *static_cast<MmaSlot*>(meeting.slot[lane]);
}

struct WordTiles {
  u32 a[kM][kWords];
  u32 b[kWords][kN];
};

void Gather(const Meeting& meeting, const MmaTile& tile, WordTiles& tiles) {
  const int halves = tile.rows / 8;
  for (int lane = 0; lane < 32; ++lane) {
    const MmaSlot& slot = SlotOf(meeting, lane);
    const int g = lane / 4, t = lane % 4;
    for (int word = 0; word < tile.words; word += 4) {
      for (int half = 0; half < halves; ++half) tiles.a[g + 8 * half][t + word] = slot.a[word / 4 * halves + half];
      tiles.b[t + word][g] = slot.b[word / 4];
    }
  }
}

// Where lane l's element i of C and D is.
int RowOf(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
int ColumnOf(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

// Floats. The words' elements come apart into planes: plane i has element i of each word.
template <Element kElement>
constexpr int kPerWord = kElement == Element::kTf32                                ? 1
                         : kElement == Element::kF16 || kElement == Element::kBf16 ? 2
                                                                                   : 4;

template <Element kElement>
float Decode(u32 word, int i) {
  if constexpr (kElement == Element::kF16) {
    return HalfFormat::Decode(word >> (16 * i) & 0xffff);
  } else if constexpr (kElement == Element::kBf16) {
    return std::bit_cast<float>(i == 0 ? word << 16 : word & 0xffff0000u);
  } else if constexpr (kElement == Element::kTf32) {
    return std::bit_cast<float>(word & ~0x1fffu);
  } else if constexpr (kElement == Element::kE4m3) {
    return E4m3Format::Decode(word >> (8 * i) & 255);
  } else {
    return E5m2Format::Decode(word >> (8 * i) & 255);
  }
}

template <int kPlanes>
struct FloatTiles {
  float a[kPlanes][kM][kWords];
  float b[kPlanes][kWords][kN];
  float c[kM][kN];
};

template <Element kElement, int kPlanes>
void DecodePlanes(const u32* words, float* planes, int n) {
  static_assert(kPlanes == kPerWord<kElement>);
  for (int i = 0; i < kPlanes; ++i) {
    for (int word = 0; word < n; ++word) planes[i * n + word] = Decode<kElement>(words[word], i);
  }
}

template <int kPlanes>
void Multiply(FloatTiles<kPlanes>& tiles, int words) {
  for (int row = 0; row < kM; ++row) {
    float sum[kN];
    std::copy_n(tiles.c[row], kN, sum);
    for (int word = 0; word < words; ++word) {
      for (int i = 0; i < kPlanes; ++i) {
        const float a = tiles.a[i][row][word];
        for (int column = 0; column < kN; ++column) sum[column] += a * tiles.b[i][word][column];
      }
    }
    std::copy_n(sum, kN, tiles.c[row]);
  }
}

template <Element kA, Element kB>
void FinishFloats(Meeting& meeting) {
  constexpr int kPlanes = kPerWord<kA>;
  const MmaTile& tile = *SlotOf(meeting, 0).tile;
  WordTiles words{};
  FloatTiles<kPlanes> tiles;
  Gather(meeting, tile, words);
  DecodePlanes<kA, kPlanes>(words.a[0], tiles.a[0][0], kM * kWords);
  DecodePlanes<kB, kPlanes>(words.b[0], tiles.b[0][0], kWords * kN);
  for (int lane = 0; lane < 32; ++lane) {
    const u32* const c = SlotOf(meeting, lane).c;
    for (int i = 0; i < 4; ++i) {
      tiles.c[RowOf(lane, i)][ColumnOf(lane, i)] =
          tile.half_accumulator ? HalfFormat::Decode(c[i / 2] >> (16 * (i % 2)) & 0xffff) : std::bit_cast<float>(c[i]);
    }
  }
  Multiply(tiles, tile.words);
  for (int lane = 0; lane < 32; ++lane) {
    u32* const d = SlotOf(meeting, lane).d;
    if (tile.half_accumulator) d[0] = d[1] = 0;
    for (int i = 0; i < 4; ++i) {
      const float c = tiles.c[RowOf(lane, i)][ColumnOf(lane, i)];
      if (tile.half_accumulator) {
        d[i / 2] |= HalfFormat::Encode(c) << (16 * (i % 2));
      } else {
        d[i] = std::bit_cast<u32>(c);
      }
    }
  }
}

// Integers: words at a time.
int64_t ElementOf(Element element, u32 word, int i) {
  switch (element) {
    case Element::kS8:
      return static_cast<s8>(word >> (8 * i));
    case Element::kU8:
      return static_cast<u8>(word >> (8 * i));
    case Element::kS4:
      return static_cast<s32>(word << (28 - 4 * i)) >> 28;
    default:
      return word >> (4 * i) & 15;
  }
}

int64_t Dot(const MmaTile& tile, u32 a, u32 b) {
  if (tile.a == Element::kB1And) return std::popcount(a & b);
  if (tile.a == Element::kB1Xor) return std::popcount(a ^ b);
  const int per_word = tile.a == Element::kS8 || tile.a == Element::kU8 ? 4 : 8;
  int64_t sum = 0;
  for (int i = 0; i < per_word; ++i) sum += ElementOf(tile.a, a, i) * ElementOf(tile.b, b, i);
  return sum;
}

void FinishIntegers(Meeting& meeting) {
  const MmaTile& tile = *SlotOf(meeting, 0).tile;
  WordTiles words{};
  Gather(meeting, tile, words);
  for (int lane = 0; lane < 32; ++lane) {
    const MmaSlot& slot = SlotOf(meeting, lane);
    for (int i = 0; i < tile.rows / 4; ++i) {
      int64_t sum = static_cast<s32>(slot.c[i]);
      for (int word = 0; word < tile.words; ++word) {
        sum += Dot(tile, words.a[RowOf(lane, i)][word], words.b[word][ColumnOf(lane, i)]);
      }
      slot.d[i] = static_cast<u32>(tile.saturate ? std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX) : sum);
    }
  }
}

using Finish = void (*)(Meeting& meeting);

Finish FinishOf(const MmaTile& tile) {
  switch (tile.a) {
    case Element::kF16:
      return FinishFloats<Element::kF16, Element::kF16>;
    case Element::kBf16:
      return FinishFloats<Element::kBf16, Element::kBf16>;
    case Element::kTf32:
      return FinishFloats<Element::kTf32, Element::kTf32>;
    case Element::kE4m3:
      return tile.b == Element::kE4m3 ? FinishFloats<Element::kE4m3, Element::kE4m3>
                                      : FinishFloats<Element::kE4m3, Element::kE5m2>;
    case Element::kE5m2:
      return tile.b == Element::kE4m3 ? FinishFloats<Element::kE5m2, Element::kE4m3>
                                      : FinishFloats<Element::kE5m2, Element::kE5m2>;
    default:
      return FinishIntegers;
  }
}

struct DoubleSlot {
  f64 a, b;
  Items<f64, 2> c;
};

void FinishDoubles(Meeting& meeting) {
  const auto slot = [&](int lane) -> DoubleSlot& { return *static_cast<DoubleSlot*>(meeting.slot[lane]); };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      f64& sum = slot(lane).c.at[i];
      for (int k = 0; k < 4; ++k) sum = std::fma(slot(4 * g + k).a, slot(4 * (2 * t + i) + k).b, sum);
    }
  }
}

}  // namespace

void Mma(const MmaTile& tile, u32* d, const u32* a, const u32* b, const u32* c, Loc where) {
  MmaSlot slot{&tile, a, b, c, d};
  MeetFullWarp("mma.sync", &slot, FinishOf(tile), where);
}

Items<f64, 2> MatrixMultiplyDoubles(f64 a, f64 b, Items<f64, 2> c, Loc where) {
  DoubleSlot slot{a, b, c};
  MeetFullWarp("mma.sync", &slot, FinishDoubles, where);
  return slot.c;
}

}  // namespace host_cuda::ptx
