// Reads little-endian values from a span and never beyond it: every read says whether it fit.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace sluice::engine {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  [[nodiscard]] bool Read(T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (remaining() < sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  [[nodiscard]] bool Skip(uint64_t count) {
    if (remaining() < count) return false;
    position_ += count;
    return true;
  }

  // A 64-bit length, then that many bytes.
  [[nodiscard]] bool ReadString(std::string_view* out) {
    const size_t start = position_;
    uint64_t length = 0;
    if (!Read(&length) || remaining() < length) {
      position_ = start;
      return false;
    }
    *out = {reinterpret_cast<const char*>(bytes_.data() + position_), size_t(length)};
    position_ += length;
    return true;
  }

  // `count` elements of `size` bytes, without overflow.
  [[nodiscard]] bool SkipArray(uint64_t count, uint64_t size) {
    return count <= remaining() / size && Skip(count * size);
  }

  std::span<const uint8_t> Since(size_t start) const { return bytes_.subspan(start, position_ - start); }

 private:
  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
};

}  // namespace sluice::engine
