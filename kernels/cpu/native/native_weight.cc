#include "kernels/cpu/native/native_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/products.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cpu {
namespace {

// Thirty-two weights of one row as the panel keeps them.
struct Block {
  uint8_t codes[kNativeBlock];
  uint16_t d16 = 0, m16 = 0;  // of the forms with halves
  float d32 = 0, m32 = 0;     // of kNibblesMinF
};

uint16_t HalfAt(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

void TakeNibbles(const uint8_t* bytes, Block& block) {
  for (int i = 0; i < 16; ++i) {
    block.codes[i] = bytes[i] & 15;
    block.codes[i + 16] = bytes[i] >> 4;
  }
}

Block TakeQ4K(const uint8_t* row, int64_t b) {
  const uint8_t* p = row + b / 8 * 144;
  const int j = int(b % 8);
  const uint8_t* s = p + 4;
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
  const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  Block block;
  // Exact: eleven bits of a half times six.
  block.d32 = F16ToF32(HalfAt(p)) * float(scale);
  block.m32 = -(F16ToF32(HalfAt(p + 2)) * float(minimum));
  for (int i = 0; i < kNativeBlock; ++i) block.codes[i] = p[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15;
  return block;
}

Block Rounded(const float* w) {
  float largest = 0.0f;
  for (int i = 0; i < kNativeBlock; ++i) largest = std::max(largest, std::abs(w[i]));
  Block block;
  block.d16 = F32ToF16(largest / 127.0f);
  const float d = F16ToF32(block.d16);
  for (int i = 0; i < kNativeBlock; ++i) {
    const float code = d > 0.0f ? std::nearbyint(w[i] / d) : 0.0f;
    block.codes[i] = uint8_t(128 + int(std::clamp(code, -127.0f, 127.0f)));
  }
  return block;
}

// Block b of a row whose type is kept as it is.
Block Taken(DType type, const uint8_t* row, int64_t b) {
  if (type == DType::kQ4_K) return TakeQ4K(row, b);
  Block block;
  const uint8_t* p = row + b * Info(type).block_bytes;
  block.d16 = HalfAt(p);
  if (type == DType::kQ8_0) {
    for (int i = 0; i < kNativeBlock; ++i) block.codes[i] = p[2 + i] ^ 0x80;
  } else if (type == DType::kQ4_1) {
    block.m16 = HalfAt(p + 2);
    TakeNibbles(p + 4, block);
  } else {
    TakeNibbles(p + 2, block);
  }
  return block;
}

bool Keeps(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_1 || type == DType::kQ4_K || type == DType::kQ8_0;
}

// Row n of a panel's block.
void Put(BlockForm form, const Block& block, int n, uint8_t* codes, uint8_t* scales) {
  for (int i = 0; i < (form == BlockForm::kBytes ? 32 : 16); ++i) {
    uint8_t& to = codes[i / 4 * (4 * kPanelRows) + n * 4 + i % 4];
    to = form == BlockForm::kBytes ? block.codes[i] : uint8_t(block.codes[i] | block.codes[i + 16] << 4);
  }
  if (form == BlockForm::kNibblesMinF) {
    std::memcpy(scales + n * 4, &block.d32, 4);
    std::memcpy(scales + (kPanelRows + n) * 4, &block.m32, 4);
  } else {
    std::memcpy(scales + n * 2, &block.d16, 2);
    if (form == BlockForm::kNibblesMin) std::memcpy(scales + (kPanelRows + n) * 2, &block.m16, 2);
  }
}

int64_t PanelBlocks(int64_t rows, int64_t cols) {
  return (rows + kPanelRows - 1) / kPanelRows * NativeBlocks(cols);
}

}  // namespace

BlockForm FormOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return BlockForm::kNibbles;
    case DType::kQ4_1:
      return BlockForm::kNibblesMin;
    case DType::kQ4_K:
      return BlockForm::kNibblesMinF;
    default:
      return BlockForm::kBytes;
  }
}

size_t NativeWeight::Bytes(const HostTensor& tensor) {
  const BlockForm form = FormOf(tensor.type);
  return size_t(PanelBlocks(tensor.rows, tensor.cols)) * size_t(CodeBytes(form) + ScaleBytes(form));
}

NativePanels NativeWeight::view() const {
  return {.form = form_,
          .codes = memory_,
          .scales = memory_ + PanelBlocks(rows(), cols()) * CodeBytes(form_),
          .blocks = NativeBlocks(cols()),
          .rows = rows()};
}

absl::StatusOr<std::unique_ptr<NativeWeight>> NativeWeight::Pack(const HostTensor& tensor, PackedMemory memory,
                                                                 const KernelTable& floats, ThreadPool& pool) {
  if (absl::Status s = CheckTensor(tensor); !s.ok()) return s;
  std::unique_ptr<NativeWeight> weight(new NativeWeight(tensor));
  weight->memory_ = reinterpret_cast<uint8_t*>(memory.data);
  if (memory.data == nullptr) {
    const size_t bytes = Bytes(tensor);
    auto own = HostMemory::Map(bytes);
    if (!own) return absl::ResourceExhaustedError(absl::StrCat("no memory for a packed tensor of ", bytes, " bytes"));
    weight->own_ = std::move(*own);
    weight->memory_ = reinterpret_cast<uint8_t*>(weight->own_.data());
  }
  if (memory.filled) return weight;
  pool.RunRanges(PanelsOf(*weight), 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(size_t(NativeBlocks(tensor.cols)) * kNativeBlock + kRowPad);
    for (int64_t p = begin; p < end; ++p) weight->PackPanel(tensor, floats, p, row.data());
  });
  return weight;
}

// Rows past the matrix keep codes and scales of zero.
void NativeWeight::PackPanel(const HostTensor& tensor, const KernelTable& floats, int64_t panel, float* row) {
  const NativePanels to = view();
  const size_t row_bytes = RowBytes(tensor.type, cols());
  for (int n = 0; n < kPanelRows && panel * kPanelRows + n < rows(); ++n) {
    const auto* from = static_cast<const uint8_t*>(tensor.data) + size_t(panel * kPanelRows + n) * row_bytes;
    if (!Keeps(tensor.type)) {
      std::fill(row, row + to.blocks * kNativeBlock, 0.0f);
      floats.dequantize(tensor.type, from, cols(), row);
    }
    for (int64_t b = 0; b < to.blocks; ++b) {
      const Block block = Keeps(tensor.type) ? Taken(tensor.type, from, b) : Rounded(row + b * kNativeBlock);
      const int64_t at = panel * to.blocks + b;
      Put(form_, block, n, memory_ + at * CodeBytes(form_), const_cast<uint8_t*>(to.scales) + at * ScaleBytes(form_));
    }
  }
}

}  // namespace sluice::kernels::cpu
