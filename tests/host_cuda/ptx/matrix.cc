#include "tests/host_cuda/ptx/matrix.h"

#include <algorithm>

#include "tests/host_cuda/ptx/full_warp.h"

namespace host_cuda::ptx {
namespace {

struct RowsSlot {
  Items<u32, 4>* row;
  u32* words;
  int matrices;
  bool transpose;
};

RowsSlot& RowsOf(const Meeting& meeting, int lane) {
  return *static_cast<RowsSlot*>(meeting.slot[lane]);
}

u32 HalfAt(const Meeting& meeting, int matrix, int row, int column) {
  return RowsOf(meeting, 8 * matrix + row).row->at[column / 2] >> (16 * (column % 2)) & 0xffff;
}

}  // namespace

void ExchangeRows(const Items<u32, 4>* row, int matrices, bool transpose, u32* out, Loc where) {
  Items<u32, 4> copy = *row;
  RowsSlot slot{&copy, out, matrices, transpose};
  MeetFullWarp(
      "ldmatrix", &slot,
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

void CollectRows(const u32* in, int matrices, bool transpose, Items<u32, 4>* row, Loc where) {
  u32 words[4] = {};
  std::copy_n(in, matrices, words);
  RowsSlot slot{row, words, matrices, transpose};
  MeetFullWarp(
      "stmatrix", &slot,
      [](Meeting& meeting) {
        const RowsSlot& first = RowsOf(meeting, 0);
        for (int m = 0; m < first.matrices; ++m) {
          for (int r = 0; r < 8; ++r) {
            for (int c = 0; c < 8; ++c) {
              // Element (g, 2t + i) of the fragment, or of its transpose.
              const int g = first.transpose ? c : r, at = first.transpose ? r : c;
              const u32 half = RowsOf(meeting, 4 * g + at / 2).words[m] >> (16 * (at % 2)) & 0xffff;
              u32& word = RowsOf(meeting, 8 * m + r).row->at[c / 2];
              word = c % 2 == 0 ? half : (word & 0xffff) | half << 16;
            }
          }
        }
      },
      where);
}

}  // namespace host_cuda::ptx
