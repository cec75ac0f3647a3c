#include "kernels/cuda/rows/columns.h"

#include <vector>

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

// Borders in elements of `size` bytes; every rank packs its columns of the whole, and each unpacks the others'.
void Exchange(const std::vector<int64_t>& borders, int size, int count) {
  const int ranks = int(borders.size()) - 1;
  const int64_t width = borders.back(), row_pitch = (width + 3) * size;
  ColumnsArgs args{.row_pitch = row_pitch, .count = count, .ranks = ranks};
  for (int rank = 0; rank <= ranks; ++rank) args.borders[rank] = borders[size_t(rank)] * size;
  for (int rank = 0; rank < ranks; ++rank) {
    args.run_pitch = std::max(args.run_pitch, (args.borders[rank + 1] - args.borders[rank] + 15) / 16 * 16);
  }
  Numbers numbers{uint64_t(width + count)};
  std::vector<uint16_t> whole(size_t(count * row_pitch / 2));
  for (uint16_t& word : whole) word = uint16_t(numbers.Below(65536));
  DeviceArray<uint16_t> runs(size_t(ranks * count * args.run_pitch / 2) + 1);  // at least one
  args.runs = runs.data();
  for (args.rank = 0; args.rank < ranks; ++args.rank) {
    DeviceArray<uint16_t> rows(whole);
    args.rows = rows.data();
    Check(PackColumns(args, nullptr));
    Check(cudaDeviceSynchronize());
    EXPECT_TRUE(SameBits(rows.Read(), whole)) << "packing changes no row";
  }
  for (args.rank = 0; args.rank < ranks; ++args.rank) {
    // Everything but the others' columns is as it was.
    std::vector<uint16_t> before(whole.size(), 0x7777), want = before;
    for (int row = 0; row < count; ++row) {
      for (int64_t i = 0; i < args.borders[ranks] / 2; ++i) {
        const bool own = 2 * i >= args.borders[args.rank] && 2 * i < args.borders[args.rank + 1];
        if (!own && 2 * i >= args.borders[0])
          want[size_t(row * row_pitch / 2 + i)] = whole[size_t(row * row_pitch / 2 + i)];
      }
    }
    DeviceArray<uint16_t> rows(before);
    args.rows = rows.data();
    Check(UnpackColumns(args, nullptr));
    EXPECT_TRUE(SameBits(rows.Read(), want))
        << "rank " << args.rank << " of " << ranks << ", " << count << " rows of " << width << " x " << size;
  }
}

TEST(Columns, ComeBackWhereTheyWere) {
  SLUICE_NEEDS_DEVICE();
  for (const int size : {2, 4}) {
    for (const int count : {1, 3, 17}) {
      Exchange({0, 64, 128}, size, count);
      Exchange({0, 1, 2, 5}, size, count);
      Exchange({0, 192, 576}, size, count);      // 3 KV heads among 2
      Exchange({0, 8, 8, 20, 21}, size, count);  // one without any
      Exchange({0, 33}, size, count);
    }
  }
  Exchange({0, 20000, 40001}, 4, 2);  // several blocks a row
  Exchange({0, 0}, 4, 2);
  Exchange({0, 4, 8}, 2, 0);
}

TEST(Columns, RefusesWhatItCannotMove) {
  SLUICE_NEEDS_DEVICE();
  DeviceArray<uint16_t> memory(64);
  ColumnsArgs args{
      .rows = memory.data(), .row_pitch = 64, .runs = memory.data(), .run_pitch = 16, .count = 1, .ranks = 2};
  args.borders[1] = 16, args.borders[2] = 34;
  EXPECT_EQ(PackColumns(args, nullptr), cudaErrorInvalidValue) << "a part wider than its run";
  args.borders[2] = 31;
  EXPECT_EQ(PackColumns(args, nullptr), cudaErrorInvalidValue) << "half an element";
  args.borders[2] = 32, args.rank = 2;
  EXPECT_EQ(UnpackColumns(args, nullptr), cudaErrorInvalidValue) << "no such rank";
  args.rank = 0, args.ranks = kMostRanks + 1;
  EXPECT_EQ(UnpackColumns(args, nullptr), cudaErrorInvalidValue) << "too many ranks";
}

}  // namespace
}  // namespace sluice::kernels::cuda
