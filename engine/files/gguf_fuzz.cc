// libFuzzer target: any bytes through the whole path of a model file (structure, architecture, tensors, vocabulary).
// Whatever is accepted is read to its last byte, so that a sanitizer sees every span that lies outside.
//
// Run: gguf_fuzz -rss_limit_mb=512 -max_len=131072 CORPUS; seeds come from gguf_fuzz_seeds.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/files/gguf.h"
#include "engine/files/model_file.h"
#include "kernels/dequant.h"

namespace {

using sluice::engine::Gguf;

void Check(bool holds) {
  if (!holds) __builtin_trap();
}

void ReadEveryTensor(const Gguf& file) {
  std::vector<float> row;
  for (const auto& tensor : file.tensors()) {
    const auto& data = tensor.data;
    const size_t row_bytes = sluice::kernels::RowBytes(data.type, data.cols);
    row.resize(size_t(data.cols));
    for (int64_t r = 0; r < data.rows; ++r) {
      sluice::kernels::DequantizeRow(data.type, static_cast<const uint8_t*>(data.data) + size_t(r) * row_bytes,
                                     data.cols, row.data());
    }
  }
}

// Errors are one printable line that names the file.
void CheckError(const absl::Status& status) {
  const std::string message(status.message());
  Check(message.starts_with("fuzz.gguf: ") && message.size() < 1000);
  for (char c : message) Check(c >= 0x20 && c < 0x7f);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const auto file = Gguf::Parse(bytes, "fuzz.gguf");
  if (!file.ok()) {
    CheckError(file.status());
    return 0;
  }
  ReadEveryTensor(*file);
  const auto model = sluice::engine::OpenModelBytes(bytes, "fuzz.gguf");
  if (!model.ok()) {
    CheckError(model.status());
    return 0;
  }
  const auto& tokenizer = (*model)->tokenizer();
  Check(tokenizer.types.size() == tokenizer.tokens.size());
  for (int32_t id : tokenizer.eog_ids) Check(id >= 0 && size_t(id) < tokenizer.tokens.size());
  Check((*model)->Find("token_embd.weight") != nullptr);
  Check((*model)->ContentHash().size() == 64);
  return 0;
}
