// A model on disk, opened and validated: hyperparameters, tensors by canonical name, vocabulary.
//
// Canonical tensor names are GGUF's ("token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"); other formats
// map to them. Tensors point into the mapped file, which lives as long as this object. Promise: once open, every tensor
// the architecture asks for exists with the right shape, so nothing after it has to check again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/files/model_config.h"
#include "engine/files/tokenizer_data.h"
#include "kernels/dtype.h"

namespace sluice::engine {

class ModelFile {
 public:
  virtual ~ModelFile() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const TokenizerData& tokenizer() const = 0;

  // Null when there is none (an optional tensor, such as a tied "output.weight").
  virtual const kernels::HostTensor* Find(std::string_view name) const = 0;

  // SHA-256 over names, shapes, types and data of all tensors, in hex. Reads the whole file the first time.
  virtual std::string ContentHash() const = 0;
};

// A GGUF file. Errors are one line that names the file, the tensor or key, and what to do next:
// NOT_FOUND (no such file), INVALID_ARGUMENT (not a GGUF file, damaged, truncated), UNIMPLEMENTED (an architecture or
// tensor type that is not known). Maps the file; reads no tensor data, so it costs the router nothing.
absl::StatusOr<std::unique_ptr<ModelFile>> OpenModel(const std::string& path);

// The same of bytes in memory, which must outlive the object; `source` stands for the path in errors.
absl::StatusOr<std::unique_ptr<ModelFile>> OpenModelBytes(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace sluice::engine
