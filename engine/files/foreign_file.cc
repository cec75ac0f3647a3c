#include "engine/files/foreign_file.h"

#include <algorithm>
#include <string_view>

#include "engine/files/byte_cursor.h"

namespace sluice::engine {
namespace {

// A 64-bit length, then JSON.
bool LooksLikeSafetensors(std::span<const uint8_t> bytes) {
  ByteCursor cursor(bytes);
  uint64_t length = 0;
  uint8_t brace = 0;
  return cursor.Read(&length) && cursor.Read(&brace) && brace == '{' && length >= 2 && length < (uint64_t{1} << 30);
}

bool LooksLikeText(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

}  // namespace

std::optional<std::string> DescribeForeignFile(std::span<const uint8_t> bytes) {
  constexpr size_t kHead = 256;
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kHead));
  if (head.empty()) return "is empty; download the model again";
  if (head.starts_with("GGUF")) return std::nullopt;
  if (std::string_view("GGUF").starts_with(head))
    return "ends after " + std::to_string(head.size()) + " bytes of a GGUF file; it is truncated: download it again";
  if (head.starts_with("FUGG")) return "is a big-endian GGUF file; convert it to little-endian";
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) {
    return "is a zip archive (a package or a PyTorch file), not GGUF; unpack it and name the .gguf file in it";
  }
  if (head.starts_with("\x1f\x8b")) return "is a gzip archive, not GGUF; unpack it and name the .gguf file in it";
  if (head.starts_with("version https://git-lfs")) {
    return "is a Git LFS pointer, not the model itself; fetch the model with 'git lfs pull'";
  }
  if (LooksLikeSafetensors(bytes)) return "is a safetensors file, not GGUF; convert the model to GGUF";
  if (LooksLikeText(head)) return "is a text file, not GGUF; name the .gguf file of a model";
  return "is not a GGUF file (wrong magic); name the .gguf file of a model";
}

}  // namespace sluice::engine
