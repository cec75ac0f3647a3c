#include "engine/model/weights.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

absl::StatusOr<const kernels::Weight*> Weights::Get(const std::string& name) {
  absl::StatusOr<const kernels::Weight*> weight = GetOptional(name);
  if (weight.ok() && *weight == nullptr) return absl::NotFoundError(absl::StrCat("the model has no tensor ", name));
  return weight;
}

absl::StatusOr<const kernels::Weight*> Weights::GetOptional(const std::string& name) {
  if (const auto it = packed_.find(name); it != packed_.end()) return it->second.get();
  const kernels::HostTensor* tensor = file_->Find(name);
  if (tensor == nullptr) return nullptr;
  return Pack(name, *tensor);
}

absl::StatusOr<const kernels::Weight*> Weights::Make(const std::string& name, std::vector<float> values, int64_t cols) {
  const std::vector<float>& kept = made_[name] = std::move(values);
  return Pack(name, {kernels::DType::kF32, kept.data(), int64_t(kept.size()) / cols, cols});
}

absl::StatusOr<const kernels::Weight*> Weights::Pack(const std::string& name, const kernels::HostTensor& tensor) {
  absl::StatusOr<std::unique_ptr<kernels::Weight>> weight = backend_->Pack(tensor);
  if (!weight.ok()) {
    return absl::Status(weight.status().code(), absl::StrCat("tensor ", name, ": ", weight.status().message()));
  }
  return (packed_[name] = *std::move(weight)).get();
}

}  // namespace sluice::engine
