// Writes GGUF v3 files for tests, byte by byte and without any check: broken files are its purpose too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/gguf.h"
#include "kernels/dtype.h"

namespace sluice::engine {

class GgufWriter {
 public:
  // A replaced key or tensor keeps its place; `Add...` of an existing name replaces it.
  void AddInt(std::string_view key, GgufType type, int64_t value);
  void AddU32(std::string_view key, uint32_t value) { AddInt(key, GgufType::kUint32, value); }
  void AddBool(std::string_view key, bool value) { AddInt(key, GgufType::kBool, value); }
  void AddF32(std::string_view key, float value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, const std::vector<std::string>& values);
  void AddI32s(std::string_view key, const std::vector<int32_t>& values);
  void AddRaw(std::string_view key, uint32_t type, std::string value);
  void RemoveKey(std::string_view key);

  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // fastest first
    uint32_t type = 0;           // the file's number of the type
    std::string data;
    int64_t offset = -1;  // -1: after the tensor before, aligned
  };
  void AddTensor(Tensor tensor);
  Tensor* FindTensor(std::string_view name);  // null: none
  void RemoveTensor(std::string_view name);

  std::string Serialize() const;

  uint32_t version = 3;
  uint64_t alignment = 32;  // of the layout; the key general.alignment is the caller's
  bool repeat_last_key = false;
  bool repeat_last_tensor = false;

 private:
  struct Key {
    std::string name;
    uint32_t type;
    std::string value;
  };
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
};

// The number by which GGUF files name a type.
uint32_t GgufTypeId(kernels::DType type);

}  // namespace sluice::engine
