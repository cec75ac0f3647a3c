#include "engine/model/weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace sluice::engine {

Weights::Weights(const ModelFile* file, const kernels::Backend* backend, const std::string& packed_folder,
                 const std::string& share)
    : file_(file), backend_(backend) {
  if (packed_folder.empty() || backend->PackedBytes({.rows = 1, .cols = 1}) == 0) return;
  // The packing id names the rounding and the layout of what is packed.
  auto packed = PackedFile::Open(
      packed_folder, absl::StrCat(file->ContentHash().substr(0, 32), ".", std::string(backend->packing_id()), share));
  if (packed.ok()) {
    packed_file_ = *std::move(packed);
  } else {
    LOG(WARNING) << "packed weights are not kept: " << packed.status().message();
  }
}

Weights::~Weights() = default;

void Weights::Finish() {
  if (packed_file_ == nullptr || packed_file_->filled() || gave_up_) return;
  if (const absl::Status status = packed_file_->Seal(); !status.ok()) GiveUpPacked(status);
}

// What the file gave stays valid as long as it lives: it is not closed, only no longer asked.
void Weights::GiveUpPacked(const absl::Status& why) {
  LOG(WARNING) << "packed weights are not kept: " << why.message();
  packed_file_->Abandon();
  gave_up_ = true;
}

kernels::PackedMemory Weights::MemoryFor(const std::string& name, const kernels::HostTensor& tensor) {
  if (packed_file_ == nullptr || gave_up_) return {};
  auto region = packed_file_->Find(name, backend_->PackedBytes(tensor));
  if (region.ok()) return {region->data, region->filled};
  GiveUpPacked(region.status());
  return {};
}

absl::StatusOr<const kernels::Weight*> Weights::Table(const std::string& name) {
  return Find(name, Use::kTable);
}

absl::StatusOr<const kernels::Weight*> Weights::Linear(const std::string& name) {
  return Find(name, Use::kLinear);
}

absl::StatusOr<const kernels::Weight*> Weights::Linear(const std::string& name, const Part& rows) {
  if (const auto it = packed_.find({name, Use::kLinear}); it != packed_.end()) return it->second.get();
  const kernels::HostTensor* whole = file_->Find(name);
  if (whole == nullptr) return absl::NotFoundError(absl::StrCat("the model has no tensor ", name));
  if (const auto table = packed_.find({name, Use::kTable}); table != packed_.end()) {
    if (auto shared = backend_->LinearOfTable(*table->second, rows.begin, rows.size()); shared != nullptr) {
      return (packed_[{name, Use::kLinear}] = std::move(shared)).get();
    }
  }
  kernels::HostTensor part = *whole;
  part.data = static_cast<const std::byte*>(whole->data) + size_t(rows.begin) * RowBytes(whole->type, whole->cols);
  part.rows = rows.size();
  return Pack(name, Use::kLinear, part);
}

absl::StatusOr<const kernels::Weight*> Weights::OptionalTable(const std::string& name, const Part& elements) {
  const kernels::HostTensor* whole = file_->Find(name);
  if (whole == nullptr) return nullptr;
  if (Info(whole->type).block_elements != 1) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is a vector of type ",
                                                   std::string(Info(whole->type).name),
                                                   ", which is none of plain numbers"));
  }
  kernels::HostTensor part = *whole;
  part.data = static_cast<const std::byte*>(whole->data) + RowBytes(whole->type, elements.begin);
  part.cols = elements.size();
  return Pack(name, Use::kTable, part);
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
      use == Use::kTable ? backend_->PackTable(tensor) : backend_->PackLinear(tensor, MemoryFor(name, tensor));
  if (!weight.ok()) {
    return absl::Status(weight.status().code(), absl::StrCat("tensor ", name, ": ", weight.status().message()));
  }
  return (packed_[{name, use}] = *std::move(weight)).get();
}

}  // namespace sluice::engine
