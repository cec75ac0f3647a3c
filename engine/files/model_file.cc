#include "engine/files/model_file.h"

#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "engine/files/architectures.h"
#include "engine/files/content_hash.h"
#include "engine/files/gguf.h"
#include "engine/files/gguf_tokenizer.h"
#include "engine/files/mapped_file.h"

namespace sluice::engine {
namespace {

class GgufModelFile final : public ModelFile {
 public:
  GgufModelFile(std::optional<MappedFile> mapping, Gguf file, ModelConfig config, TokenizerData tokenizer)
      : mapping_(std::move(mapping)),
        file_(std::move(file)),
        config_(std::move(config)),
        tokenizer_(std::move(tokenizer)) {}

  const ModelConfig& config() const override { return config_; }
  const TokenizerData& tokenizer() const override { return tokenizer_; }

  const kernels::HostTensor* Find(std::string_view name) const override {
    const GgufTensor* tensor = file_.FindTensor(name);
    return tensor == nullptr ? nullptr : &tensor->data;
  }

  std::string ContentHash() const override {
    std::call_once(hash_once_, [this] { hash_ = HashTensors(file_.tensors()); });
    return hash_;
  }

 private:
  std::optional<MappedFile> mapping_;  // none: the caller owns the bytes. Moving it doesn't move the bytes.
  Gguf file_;
  ModelConfig config_;
  TokenizerData tokenizer_;
  mutable std::once_flag hash_once_;
  mutable std::string hash_;
};

absl::StatusOr<std::unique_ptr<ModelFile>> Build(std::span<const uint8_t> bytes, const std::string& source,
                                                 std::optional<MappedFile> mapping) {
  absl::StatusOr<Gguf> file = Gguf::Parse(bytes, source);
  if (!file.ok()) return file.status();
  absl::StatusOr<Architecture> architecture = ReadArchitecture(*file);
  if (!architecture.ok()) return architecture.status();
  if (absl::Status s = CheckTensors(*file, *architecture); !s.ok()) return s;
  absl::StatusOr<TokenizerData> tokenizer = ReadTokenizer(*file, architecture->config.vocab);
  if (!tokenizer.ok()) return tokenizer.status();
  return std::make_unique<GgufModelFile>(std::move(mapping), *std::move(file), std::move(architecture->config),
                                         *std::move(tokenizer));
}

// A key that is missing in the file is a fault of the file: NOT_FOUND is kept for a missing file.
template <typename T>
absl::StatusOr<T> FaultOfTheFile(absl::StatusOr<T> result) {
  if (!absl::IsNotFound(result.status())) return result;
  return absl::InvalidArgumentError(result.status().message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFile>> OpenModel(const std::string& path) {
  absl::StatusOr<MappedFile> mapping = MappedFile::Open(path);
  if (!mapping.ok()) return mapping.status();
  const std::span<const uint8_t> bytes = mapping->bytes();
  return FaultOfTheFile(Build(bytes, path, *std::move(mapping)));
}

absl::StatusOr<std::unique_ptr<ModelFile>> OpenModelBytes(std::span<const uint8_t> bytes, const std::string& source) {
  return FaultOfTheFile(Build(bytes, source, std::nullopt));
}

}  // namespace sluice::engine
