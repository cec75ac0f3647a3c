#include "engine/files/testing/gguf_writer.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {
namespace {

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendString(std::string* out, std::string_view text) {
  Append(out, uint64_t{text.size()});
  out->append(text);
}

template <typename Container>
auto FindByName(Container& items, std::string_view name) {
  return std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
}

}  // namespace

void GgufWriter::AddInt(std::string_view key, GgufType type, int64_t value) {
  std::string bytes;
  Append(&bytes, value);
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      bytes.resize(1);
      break;
    case GgufType::kUint16:
    case GgufType::kInt16:
      bytes.resize(2);
      break;
    case GgufType::kUint32:
    case GgufType::kInt32:
      bytes.resize(4);
      break;
    default:
      break;
  }
  AddRaw(key, uint32_t(type), std::move(bytes));
}

void GgufWriter::AddF32(std::string_view key, float value) {
  std::string bytes;
  Append(&bytes, value);
  AddRaw(key, uint32_t(GgufType::kFloat32), std::move(bytes));
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  std::string bytes;
  AppendString(&bytes, value);
  AddRaw(key, uint32_t(GgufType::kString), std::move(bytes));
}

void GgufWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes;
  Append(&bytes, uint32_t(GgufType::kString));
  Append(&bytes, uint64_t{values.size()});
  for (const std::string& value : values) AppendString(&bytes, value);
  AddRaw(key, uint32_t(GgufType::kArray), std::move(bytes));
}

void GgufWriter::AddI32s(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes;
  Append(&bytes, uint32_t(GgufType::kInt32));
  Append(&bytes, uint64_t{values.size()});
  for (int32_t value : values) Append(&bytes, value);
  AddRaw(key, uint32_t(GgufType::kArray), std::move(bytes));
}

void GgufWriter::AddRaw(std::string_view key, uint32_t type, std::string value) {
  Key entry{std::string(key), type, std::move(value)};
  const auto it = FindByName(keys_, key);
  if (it == keys_.end()) {
    keys_.push_back(std::move(entry));
  } else {
    *it = std::move(entry);
  }
}

void GgufWriter::RemoveKey(std::string_view key) {
  std::erase_if(keys_, [&](const Key& entry) { return entry.name == key; });
}

void GgufWriter::AddTensor(Tensor tensor) {
  const auto it = FindByName(tensors_, tensor.name);
  if (it == tensors_.end()) {
    tensors_.push_back(std::move(tensor));
  } else {
    *it = std::move(tensor);
  }
}

GgufWriter::Tensor* GgufWriter::FindTensor(std::string_view name) {
  const auto it = FindByName(tensors_, name);
  return it == tensors_.end() ? nullptr : &*it;
}

void GgufWriter::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::Serialize() const {
  std::vector<Key> keys = keys_;
  if (repeat_last_key) keys.push_back(keys.back());
  std::vector<Tensor> tensors = tensors_;
  if (repeat_last_tensor) tensors.push_back(tensors.back());
  std::string out = "GGUF";
  Append(&out, version);
  Append(&out, uint64_t{tensors.size()});
  Append(&out, uint64_t{keys.size()});
  for (const Key& key : keys) {
    AppendString(&out, key.name);
    Append(&out, key.type);
    out += key.value;
  }
  const auto aligned = [&](uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
  std::string data;
  for (const Tensor& tensor : tensors) {
    AppendString(&out, tensor.name);
    Append(&out, uint32_t(tensor.dims.size()));
    for (uint64_t dim : tensor.dims) Append(&out, dim);
    Append(&out, tensor.type);
    Append(&out, tensor.offset >= 0 ? uint64_t(tensor.offset) : uint64_t{data.size()});
    data += tensor.data;
    data.resize(aligned(data.size()), '\0');
  }
  out.resize(aligned(out.size()), '\0');
  return out + data;
}

uint32_t GgufTypeId(kernels::DType type) {
  using kernels::DType;
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
  }
  __builtin_unreachable();
}

}  // namespace sluice::engine
