// The packed weights of one model: each tensor of the file is packed once for each use, and shared by those who ask for
// it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/files/model_file.h"
#include "engine/files/packed_file.h"
#include "engine/parallel/tensor_split.h"
#include "kernels/backend.h"

namespace sluice::engine {

class Weights {
 public:
  // `file` and `backend` must outlive the weights, which may be read in place. Where `packed_folder` is not empty, what
  // the backend copies is kept there for later starts and other processes (files/packed_file.h); without room or leave
  // to write it is packed into memory of our own, with a warning. `share` names a rank's part of a model, for the file.
  Weights(const ModelFile* file, const kernels::Backend* backend, const std::string& packed_folder,
          const std::string& share);
  ~Weights();

  // A tensor packed as the backend wants it for its use (kernels/backend.h); one may have both, which share memory
  // where the backend keeps them alike and the table came first. NOT_FOUND naming it.
  absl::StatusOr<const kernels::Weight*> Table(const std::string& name);
  absl::StatusOr<const kernels::Weight*> Linear(const std::string& name);

  // Rows of a matrix; elements of a vector, null when the file has none of that name. One part of each name.
  absl::StatusOr<const kernels::Weight*> Linear(const std::string& name, const Part& rows);
  absl::StatusOr<const kernels::Weight*> OptionalTable(const std::string& name, const Part& elements);

  // All that will be asked for was: what was packed becomes visible to others.
  void Finish();

  bool Has(const std::string& name) const { return file_->Find(name) != nullptr; }

  // A table of our own, [rows][cols] in f32; kept alive here.
  absl::StatusOr<const kernels::Weight*> Make(const std::string& name, std::vector<float> values, int64_t cols);

 private:
  enum class Use { kTable, kLinear };
  absl::StatusOr<const kernels::Weight*> Find(const std::string& name, Use use);
  void GiveUpPacked(const absl::Status& why);
  kernels::PackedMemory MemoryFor(const std::string& name, const kernels::HostTensor& tensor);
  absl::StatusOr<const kernels::Weight*> Pack(const std::string& name, Use use, const kernels::HostTensor& tensor);

  const ModelFile* file_;
  const kernels::Backend* backend_;
  std::unique_ptr<PackedFile> packed_file_;  // may be null
  bool gave_up_ = false;
  std::map<std::string, std::vector<float>> made_;
  // Destroyed before what it may read in place.
  std::map<std::pair<std::string, Use>, std::unique_ptr<kernels::Weight>> packed_;
};

}  // namespace sluice::engine
