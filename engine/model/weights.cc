#include "engine/model/weights.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

absl::StatusOr<const kernels::Weight*> Weights::Table(const std::string& name) {
  return Find(name, Use::kTable);
}

absl::StatusOr<const kernels::Weight*> Weights::Linear(const std::string& name) {
  return Find(name, Use::kLinear);
}

absl::StatusOr<const kernels::Weight*> Weights::OptionalTable(const std::string& name) {
  if (!Has(name)) return nullptr;
  return Find(name, Use::kTable);
}

absl::StatusOr<const kernels::Weight*> Weights::Find(const std::string& name, Use use) {
  if (const auto it = packed_.find({name, use}); it != packed_.end()) return it->second.get();
  const kernels::HostTensor* tensor = file_->Find(name);
  if (tensor == nullptr) return absl::NotFoundError(absl::StrCat("the model has no tensor ", name));
  return Pack(name, use, *tensor);
}

absl::StatusOr<const kernels::Weight*> Weights::Make(const std::string& name, std::vector<float> values, int64_t cols) {
  const std::vector<float>& kept = made_[name] = std::move(values);
  return Pack(name, Use::kTable, {kernels::DType::kF32, kept.data(), int64_t(kept.size()) / cols, cols});
}

absl::StatusOr<const kernels::Weight*> Weights::Pack(const std::string& name, Use use,
                                                          const kernels::HostTensor& tensor) {
  absl::StatusOr<std::unique_ptr<kernels::Weight>> weight =
      use == Use::kTable ? backend_->PackTable(tensor) : backend_->PackLinear(tensor);
  if (!weight.ok()) {
    return absl::Status(weight.status().code(), absl::StrCat("tensor ", name, ": ", weight.status().message()));
  }
  return (packed_[{name, use}] = *std::move(weight)).get();
}

}  // namespace sluice::engine
