// Gguf::Parse: the validation of a file's structure. What it guarantees is in gguf.h.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "engine/files/byte_cursor.h"
#include "engine/files/concat.h"
#include "engine/files/foreign_file.h"
#include "engine/files/gguf.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kMaxNameLength = 65535;  // keys and tensor names, as the format's specification limits keys
constexpr uint64_t kDefaultAlignment = 32;
constexpr int64_t kMinAlignment = 8, kMaxAlignment = 1 << 20;

struct FileType {
  uint32_t id;
  std::string_view name;
  std::optional<kernels::DType> type;  // none: known by name only
};

using kernels::DType;
constexpr FileType kFileTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
};

const FileType* FindFileType(uint32_t id) {
  for (const FileType& type : kFileTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

// Bytes of one element; 0 for what has no fixed size.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

}  // namespace

class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string source)
      : bytes_(bytes), cursor_(bytes), file_(std::move(source)) {}

  absl::StatusOr<Gguf> Run() && {
    if (absl::Status s = ReadPreamble(); !s.ok()) return s;
    file_.values_.reserve(num_keys_);
    for (uint64_t i = 0; i < num_keys_; ++i) {
      if (absl::Status s = ReadKey(i); !s.ok()) return s;
    }
    if (absl::Status s = ReadAlignment(); !s.ok()) return s;
    file_.tensors_.reserve(num_tensors_);
    file_.tensor_index_.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      if (absl::Status s = ReadTensor(i); !s.ok()) return s;
    }
    if (absl::Status s = PlaceTensors(); !s.ok()) return s;
    if (absl::Status s = CheckOverlaps(); !s.ok()) return s;
    return std::move(file_);
  }

 private:
  template <typename... Args>
  absl::Status Invalid(const Args&... args) const {
    return absl::InvalidArgumentError(Concat(file_.source_, ": ", args...));
  }
  template <typename... Args>
  absl::Status Unsupported(const Args&... args) const {
    return absl::UnimplementedError(Concat(file_.source_, ": ", args...));
  }
  absl::Status Truncated(std::string_view where) const {
    return Invalid("the file ends inside ", where, " (", bytes_.size(),
                   " bytes); it is truncated or damaged: download it again");
  }

  absl::Status ReadPreamble() {
    if (std::optional<std::string> foreign = DescribeForeignFile(bytes_)) return Invalid(*foreign);
    uint32_t magic = 0, version = 0;
    if (!cursor_.Read(&magic) || !cursor_.Read(&version)) return Truncated("the GGUF header");
    if (__builtin_bswap32(version) == kVersion) {
      return Unsupported("is a big-endian GGUF file; convert it to little-endian");
    }
    if (version != kVersion) {
      return Unsupported("is GGUF version ", version, ", only version 3 is read; convert the model again");
    }
    if (!cursor_.Read(&num_tensors_) || !cursor_.Read(&num_keys_)) return Truncated("the GGUF header");
    // The least bytes a key and a tensor take: so the reservations below are bounded by the size of the file.
    constexpr uint64_t kLeastKey = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;
    if (num_keys_ > Gguf::kMaxKeys || num_keys_ > cursor_.remaining() / kLeastKey) {
      return Invalid("claims ", num_keys_,
                     " metadata keys, more than fit; it is truncated or damaged: download it again");
    }
    if (num_tensors_ > Gguf::kMaxTensors || num_tensors_ > cursor_.remaining() / kLeastTensor) {
      return Invalid("claims ", num_tensors_, " tensors, more than fit; it is truncated or damaged: download it again");
    }
    return absl::OkStatus();
  }

  absl::Status ReadKey(uint64_t index) {
    const std::string unnamed = Concat("metadata key ", index + 1, " of ", num_keys_);
    std::string_view key;
    if (!cursor_.ReadString(&key)) return Truncated(unnamed);
    if (key.empty() || key.size() > kMaxNameLength) return Invalid(unnamed, " has a name of ", key.size(), " bytes");
    const std::string where = Concat("key ", Printable(key));
    uint32_t type = 0;
    if (!cursor_.Read(&type)) return Truncated(where);
    GgufValue value;
    if (absl::Status s = ReadValue(type, where, &value); !s.ok()) return s;
    if (!file_.values_.emplace(key, value).second) return Invalid(where, " appears twice");
    return absl::OkStatus();
  }

  absl::Status ReadValue(uint32_t type, const std::string& where, GgufValue* value) {
    if (type > uint32_t(GgufType::kFloat64)) return Invalid(where, " has the unknown value type ", type);
    value->type = GgufType(type);
    if (value->type == GgufType::kArray) {
      value->is_array = true;
      uint32_t element = 0;
      if (!cursor_.Read(&element) || !cursor_.Read(&value->count)) return Truncated(where);
      if (element > uint32_t(GgufType::kFloat64)) return Invalid(where, " has the unknown element type ", element);
      value->type = GgufType(element);
    }
    const size_t start = cursor_.position();
    if (absl::Status s = SkipElements(value->type, value->count, 1, where); !s.ok()) return s;
    value->bytes = cursor_.Since(start);
    return absl::OkStatus();
  }

  // Every element takes bytes of the file, so the time is bounded by its size.
  absl::Status SkipElements(GgufType type, uint64_t count, int depth, const std::string& where) {
    if (depth > Gguf::kMaxArrayDepth) return Invalid(where, " nests arrays deeper than ", Gguf::kMaxArrayDepth);
    if (const uint64_t size = ScalarBytes(type)) {
      return cursor_.SkipArray(count, size) ? absl::OkStatus() : Truncated(where);
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (type == GgufType::kString) {
        std::string_view ignored;
        if (!cursor_.ReadString(&ignored)) return Truncated(where);
        continue;
      }
      uint32_t element = 0;
      uint64_t inner = 0;
      if (!cursor_.Read(&element) || !cursor_.Read(&inner)) return Truncated(where);
      if (element > uint32_t(GgufType::kFloat64)) return Invalid(where, " has the unknown element type ", element);
      if (absl::Status s = SkipElements(GgufType(element), inner, depth + 1, where); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status ReadAlignment() {
    alignment_ = kDefaultAlignment;
    if (!file_.Has("general.alignment")) return absl::OkStatus();
    absl::StatusOr<int64_t> value = file_.GetInt("general.alignment", kMinAlignment, kMaxAlignment);
    if (!value.ok()) return value.status();
    if (!std::has_single_bit(uint64_t(*value))) {
      return Invalid("key \"general.alignment\" is ", *value, ", not a power of two");
    }
    alignment_ = uint64_t(*value);
    return absl::OkStatus();
  }

  absl::Status ReadTensor(uint64_t index) {
    const std::string unnamed = Concat("tensor ", index + 1, " of ", num_tensors_);
    GgufTensor tensor;
    if (!cursor_.ReadString(&tensor.name)) return Truncated(unnamed);
    if (tensor.name.empty() || tensor.name.size() > kMaxNameLength) {
      return Invalid(unnamed, " has a name of ", tensor.name.size(), " bytes");
    }
    const std::string where = Concat("tensor ", Printable(tensor.name));
    uint32_t num_dims = 0, type_id = 0;
    uint64_t offset = 0;
    if (!cursor_.Read(&num_dims)) return Truncated(where);
    if (num_dims < 1 || num_dims > tensor.dims.size())
      return Invalid(where, " has ", num_dims, " dimensions, not 1 to 4");
    tensor.num_dims = int(num_dims);
    for (uint32_t d = 0; d < num_dims; ++d) {
      if (!cursor_.Read(&tensor.dims[d])) return Truncated(where);
    }
    if (!cursor_.Read(&type_id) || !cursor_.Read(&offset)) return Truncated(where);
    if (absl::Status s = SizeTensor(type_id, where, &tensor); !s.ok()) return s;
    if (offset % alignment_ != 0)
      return Invalid(where, " starts at ", offset, ", which is not aligned to ", alignment_);
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second)
      return Invalid(where, " appears twice");
    file_.tensors_.push_back(tensor);
    offsets_.push_back(offset);
    return absl::OkStatus();
  }

  absl::Status SizeTensor(uint32_t type_id, const std::string& where, GgufTensor* tensor) const {
    const FileType* type = FindFileType(type_id);
    if (type == nullptr || !type->type.has_value()) {
      return Unsupported(where, " is stored as type ", type_id, type != nullptr ? Concat(" (", type->name, ")") : "",
                         ", which is not supported; take a file in F16, Q8_0, Q4_1, Q4_K_M or the like");
    }
    const kernels::DTypeInfo& info = kernels::Info(*type->type);
    int64_t rows = 1, elements = 0;
    bool fits = true;
    for (size_t d = 0; d < tensor->dims.size(); ++d) {
      if (tensor->dims[d] <= 0) return Invalid(where, " has dimension ", d + 1, " of ", uint64_t(tensor->dims[d]));
      if (d > 0) fits = fits && !__builtin_mul_overflow(rows, tensor->dims[d], &rows);
    }
    fits = fits && !__builtin_mul_overflow(rows, tensor->dims[0], &elements);
    if (!fits) return Invalid(where, " is larger than any memory");
    if (tensor->dims[0] % info.block_elements != 0) {
      return Invalid(where, " has rows of ", tensor->dims[0], " elements, not a multiple of the ", info.block_elements,
                     " in a block of ", info.name);
    }
    if (__builtin_mul_overflow(size_t(elements / info.block_elements), size_t(info.block_bytes), &tensor->bytes)) {
      return Invalid(where, " is larger than any memory");
    }
    tensor->data = {*type->type, nullptr, rows, tensor->dims[0]};
    return absl::OkStatus();
  }

  // Offsets count from the first aligned byte after the directory.
  absl::Status PlaceTensors() {
    const uint64_t start = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t available = bytes_.size() > start ? bytes_.size() - start : 0;
    for (size_t i = 0; i < file_.tensors_.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      if (offsets_[i] > available || tensor.bytes > available - offsets_[i]) {
        return Invalid("tensor ", Printable(tensor.name), " (", tensor.bytes,
                       " bytes) lies beyond the end of the file (", bytes_.size(),
                       " bytes); it is truncated or damaged: download it again");
      }
      tensor.data.data = bytes_.data() + start + offsets_[i];
    }
    return absl::OkStatus();
  }

  absl::Status CheckOverlaps() const {
    std::vector<size_t> order(file_.tensors_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor &before = file_.tensors_[order[i - 1]], &after = file_.tensors_[order[i]];
      if (offsets_[order[i]] - offsets_[order[i - 1]] < before.bytes) {
        return Invalid("tensors ", Printable(before.name), " and ", Printable(after.name),
                       " overlap; the file is damaged");
      }
    }
    return absl::OkStatus();
  }

  std::span<const uint8_t> bytes_;
  ByteCursor cursor_;
  Gguf file_;
  uint64_t num_tensors_ = 0, num_keys_ = 0, alignment_ = kDefaultAlignment;
  std::vector<uint64_t> offsets_;  // parallel to the tensors, from the start of the data
};

absl::StatusOr<Gguf> Gguf::Parse(std::span<const uint8_t> bytes, std::string source) {
  return GgufParser(bytes, std::move(source)).Run();
}

}  // namespace sluice::engine
