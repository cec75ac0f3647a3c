#include "engine/files/gguf.h"

#include <cmath>
#include <optional>

#include "absl/strings/escaping.h"
#include "engine/files/byte_cursor.h"
#include "engine/files/concat.h"

namespace sluice::engine {
namespace {

std::string_view TypeName(GgufType type) {
  constexpr std::string_view kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                         "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[size_t(type)];
}

template <typename T>
std::optional<int64_t> ReadAs(ByteCursor& cursor) {
  T value;
  if (!cursor.Read(&value)) return std::nullopt;
  if (std::is_same_v<T, uint64_t> && uint64_t(value) > uint64_t(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return int64_t(value);
}

// Nullopt: not an integer type, or beyond int64.
std::optional<int64_t> ReadInt(GgufType type, ByteCursor& cursor) {
  switch (type) {
    case GgufType::kUint8:
      return ReadAs<uint8_t>(cursor);
    case GgufType::kInt8:
      return ReadAs<int8_t>(cursor);
    case GgufType::kUint16:
      return ReadAs<uint16_t>(cursor);
    case GgufType::kInt16:
      return ReadAs<int16_t>(cursor);
    case GgufType::kUint32:
      return ReadAs<uint32_t>(cursor);
    case GgufType::kInt32:
      return ReadAs<int32_t>(cursor);
    case GgufType::kUint64:
      return ReadAs<uint64_t>(cursor);
    case GgufType::kInt64:
      return ReadAs<int64_t>(cursor);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string Printable(std::string_view name) {
  constexpr size_t kLongest = 80;
  const std::string escaped = absl::CHexEscape(ForAbseil(name.substr(0, kLongest)));
  return Concat("\"", escaped, name.size() > kLongest ? "...\"" : "\"");
}

absl::Status Gguf::WrongType(std::string_view key, std::string_view wanted, const GgufValue& value) const {
  return absl::InvalidArgumentError(Concat(source_, ": key ", Printable(key), " should be ", wanted, " but is ",
                                           value.is_array ? "an array of " : "", TypeName(value.type)));
}

absl::StatusOr<GgufValue> Gguf::Scalar(std::string_view key, std::string_view wanted) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return absl::NotFoundError(Concat(source_, ": key ", Printable(key), " is missing"));
  if (it->second.is_array) return WrongType(key, wanted, it->second);
  return it->second;
}

absl::StatusOr<GgufValue> Gguf::Array(std::string_view key, std::string_view wanted) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return absl::NotFoundError(Concat(source_, ": key ", Printable(key), " is missing"));
  if (!it->second.is_array) return WrongType(key, wanted, it->second);
  return it->second;
}

absl::StatusOr<int64_t> Gguf::GetInt(std::string_view key, int64_t min, int64_t max) const {
  const absl::StatusOr<GgufValue> value = Scalar(key, "an integer");
  if (!value.ok()) return value.status();
  ByteCursor cursor(value->bytes);
  const std::optional<int64_t> result = ReadInt(value->type, cursor);
  if (!result.has_value()) return WrongType(key, "an integer within 63 bits", *value);
  if (*result < min || *result > max) {
    return absl::InvalidArgumentError(
        Concat(source_, ": key ", Printable(key), " is ", *result, ", outside ", min, " to ", max));
  }
  return *result;
}

absl::StatusOr<double> Gguf::GetFloat(std::string_view key) const {
  const absl::StatusOr<GgufValue> value = Scalar(key, "a float");
  if (!value.ok()) return value.status();
  ByteCursor cursor(value->bytes);
  float narrow = 0;
  double wide = 0;
  if (value->type == GgufType::kFloat32 && cursor.Read(&narrow)) {
    wide = narrow;
  } else if (value->type != GgufType::kFloat64 || !cursor.Read(&wide)) {
    return WrongType(key, "a float", *value);
  }
  if (!std::isfinite(wide)) {
    return absl::InvalidArgumentError(Concat(source_, ": key ", Printable(key), " is ", wide, ", not finite"));
  }
  return wide;
}

absl::StatusOr<bool> Gguf::GetBool(std::string_view key) const {
  const absl::StatusOr<GgufValue> value = Scalar(key, "a bool");
  if (!value.ok()) return value.status();
  if (value->type != GgufType::kBool) return WrongType(key, "a bool", *value);
  return value->bytes[0] != 0;
}

absl::StatusOr<std::string> Gguf::GetString(std::string_view key) const {
  const absl::StatusOr<GgufValue> value = Scalar(key, "a string");
  if (!value.ok()) return value.status();
  ByteCursor cursor(value->bytes);
  std::string_view text;
  if (value->type != GgufType::kString || !cursor.ReadString(&text)) return WrongType(key, "a string", *value);
  return std::string(text);
}

absl::StatusOr<std::vector<std::string>> Gguf::GetStrings(std::string_view key) const {
  const absl::StatusOr<GgufValue> value = Array(key, "an array of strings");
  if (!value.ok()) return value.status();
  if (value->type != GgufType::kString) return WrongType(key, "an array of strings", *value);
  std::vector<std::string> out;
  out.reserve(value->count);
  ByteCursor cursor(value->bytes);
  std::string_view text;
  while (cursor.ReadString(&text)) out.emplace_back(text);
  return out;
}

absl::StatusOr<std::vector<int64_t>> Gguf::GetInts(std::string_view key) const {
  const absl::StatusOr<GgufValue> value = Array(key, "an array of integers");
  if (!value.ok()) return value.status();
  std::vector<int64_t> out;
  ByteCursor cursor(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> element = ReadInt(value->type, cursor);
    if (!element.has_value()) return WrongType(key, "an array of integers within 63 bits", *value);
    out.push_back(*element);
  }
  return out;
}

const GgufTensor* Gguf::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace sluice::engine
