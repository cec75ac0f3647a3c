// The packed weights of one model: each tensor of the file is packed once, by name, and shared by those who ask for it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/files/model_file.h"
#include "kernels/backend.h"

namespace sluice::engine {

class Weights {
 public:
  // `file` and `backend` must outlive the weights, which may be read in place.
  Weights(const ModelFile* file, const kernels::Backend* backend) : file_(file), backend_(backend) {}

  // NOT_FOUND naming the tensor.
  absl::StatusOr<const kernels::Weight*> Get(const std::string& name);

  // Null when the file has none of that name.
  absl::StatusOr<const kernels::Weight*> GetOptional(const std::string& name);

  // A table of our own, [rows][cols] in f32; kept alive here.
  absl::StatusOr<const kernels::Weight*> Make(const std::string& name, std::vector<float> values, int64_t cols);

 private:
  absl::StatusOr<const kernels::Weight*> Pack(const std::string& name, const kernels::HostTensor& tensor);

  const ModelFile* file_;
  const kernels::Backend* backend_;
  std::map<std::string, std::vector<float>> made_;
  std::map<std::string, std::unique_ptr<kernels::Weight>> packed_;  // destroyed before what it may read in place
};

}  // namespace sluice::engine
