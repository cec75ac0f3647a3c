// A GGUF v3 file, read in place: typed metadata and the tensor directory.
//
// Promise: whatever the bytes are, Parse either returns a file in which every key, string, array and tensor lies inside
// the bytes (so that no reader of it has to check a bound), or one error line that names the file, the key or tensor
// and, where there is one, the next step. Memory is proportional to the bytes read as header, whatever counts they
// claim. INVALID_ARGUMENT: damaged, truncated, foreign. UNIMPLEMENTED: another version, byte order or tensor type.
//
// Limits: only the storage types of kernels/dtype.h; at most kMaxKeys keys and kMaxTensors tensors; arrays nested at
// most kMaxArrayDepth deep; general.alignment from 8 to 1 MiB.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

namespace sluice::engine {

enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

// The bytes of one value as they lie in the file.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // for an array: the type of its elements
  bool is_array = false;
  uint64_t count = 1;              // elements
  std::span<const uint8_t> bytes;  // all elements; strings with their lengths
};

struct GgufTensor {
  std::string_view name;                       // points into the file
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // fastest first
  int num_dims = 1;
  kernels::HostTensor data;  // cols = dims[0], rows = the other dims' product
  size_t bytes = 0;
};

class Gguf {
 public:
  static constexpr uint64_t kMaxKeys = 1 << 16;
  static constexpr uint64_t kMaxTensors = 1 << 18;
  static constexpr int kMaxArrayDepth = 4;

  // `bytes` must outlive the object. `source` is the name of the file in errors.
  static absl::StatusOr<Gguf> Parse(std::span<const uint8_t> bytes, std::string source);

  const std::string& source() const { return source_; }

  // Typed metadata. NOT_FOUND: no such key. INVALID_ARGUMENT: another type, or out of the range that is asked for.
  // Integers of any width and sign are integers, both float widths are floats; they are never mixed.
  absl::StatusOr<int64_t> GetInt(std::string_view key, int64_t min = std::numeric_limits<int64_t>::min(),
                                 int64_t max = std::numeric_limits<int64_t>::max()) const;
  absl::StatusOr<double> GetFloat(std::string_view key) const;  // finite
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::string> GetString(std::string_view key) const;
  absl::StatusOr<std::vector<std::string>> GetStrings(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(std::string_view key) const;
  bool Has(std::string_view key) const { return values_.contains(key); }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the file's order
  const GgufTensor* FindTensor(std::string_view name) const;           // null: none

 private:
  friend class GgufParser;
  explicit Gguf(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<GgufValue> Scalar(std::string_view key, std::string_view wanted) const;
  absl::StatusOr<GgufValue> Array(std::string_view key, std::string_view wanted) const;
  absl::Status WrongType(std::string_view key, std::string_view wanted, const GgufValue& value) const;

  std::string source_;
  absl::flat_hash_map<std::string_view, GgufValue> values_;  // keys point into the file
  absl::flat_hash_map<std::string_view, size_t> tensor_index_;
  std::vector<GgufTensor> tensors_;
};

// A name from a file as part of a one-line error: quoted, escaped, shortened.
std::string Printable(std::string_view name);

}  // namespace sluice::engine
