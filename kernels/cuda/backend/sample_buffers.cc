#include "kernels/cuda/backend/sample_buffers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "glog/logging.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kMostEdits = 1 << 20;  // of a step: what 256 answers of 4,000 different tokens with penalties need

}  // namespace

absl::StatusOr<SampleBuffers> SampleBuffers::Create(const ContextLimits& limits) {
  SampleBuffers b;
  if (limits.max_vocab > kMostSampleVocab) return b;
  const size_t rows = size_t(limits.max_logits);
  // Every token of a sequence may be edited once, and what a request names itself.
  constexpr int64_t kNamed = 1024;
  const int64_t edits = std::min(kMostEdits, int64_t(limits.max_logits) * (limits.max_context + kNamed));
  b.limits_ = {.rows = limits.max_logits, .edits = int(edits), .tops = kMostSampleTops};
  const size_t in = rows * sizeof(SampleRow) + size_t(edits) * sizeof(LogitEdit);
  const size_t out = rows * (1 + size_t(b.limits_.tops)) * sizeof(SampledToken);
  for (const auto& [memory, bytes] : {std::pair(&b.host_in_, in), {&b.host_out_, out}}) {
    auto made = NewPinnedMemory(bytes, "metadata of sampling");
    if (!made.ok()) return made.status();
    *memory = *std::move(made);
  }
  for (const auto& [memory, bytes] : {std::pair(&b.device_in_, in),
                                      {&b.device_out_, out},
                                      {&b.workspace_, SampleWorkspace(int(rows), limits.max_vocab, int(edits))}}) {
    auto made = NewDeviceMemory(bytes, "scratch of sampling");
    if (!made.ok()) return made.status();
    *memory = *std::move(made);
  }
  return b;
}

void SampleBuffers::Fill(const SampleBatch* batch, int padded) {
  batch_ = batch;
  used_rows_ = padded;
  used_edits_ = 0;
  if (limits_.rows == 0) {
    CHECK(batch == nullptr) << "this context does not sample";
    return;
  }
  CHECK_LE(padded, limits_.rows);
  SampleRow* end = rows();
  if (batch != nullptr) {
    CHECK_LE(batch->rows.size(), size_t(padded));
    CHECK_EQ(batch->tokens.size(), batch->rows.size());
    CHECK_LE(batch->edits.size(), size_t(limits_.edits));
    CHECK_LE(batch->tops.size(), batch->rows.size() * size_t(limits_.tops));
    used_edits_ = int(batch->edits.size());
    end = std::copy(batch->rows.begin(), batch->rows.end(), end);
    std::copy(batch->edits.begin(), batch->edits.end(), reinterpret_cast<LogitEdit*>(rows() + limits_.rows));
  }
  std::fill(end, rows() + padded, SampleRow{});
}

cudaError_t SampleBuffers::Copy(cudaStream_t stream) {
  if (limits_.rows == 0 || used_rows_ == 0) return cudaSuccess;
  char* const device = static_cast<char*>(device_in_.get());
  const char* const host = static_cast<const char*>(host_in_.get());
  const cudaError_t error =
      cudaMemcpyAsync(device, host, size_t(used_rows_) * sizeof(SampleRow), cudaMemcpyHostToDevice, stream);
  if (error != cudaSuccess || used_edits_ == 0) return error;
  const size_t at = size_t(limits_.rows) * sizeof(SampleRow);
  return cudaMemcpyAsync(device + at, host + at, size_t(used_edits_) * sizeof(LogitEdit), cudaMemcpyHostToDevice,
                         stream);
}

cudaError_t SampleBuffers::Launch(float* logits, float* maxima, int launched, int vocab, cudaStream_t stream) const {
  if (limits_.rows == 0) return cudaSuccess;
  const SampleRow* const in = static_cast<const SampleRow*>(device_in_.get());
  SampledToken* const out = static_cast<SampledToken*>(device_out_.get());
  return cuda::Sample({.logits = logits,
                       .maxima = maxima,
                       .rows_of = in,
                       .edits = reinterpret_cast<const LogitEdit*>(in + limits_.rows),
                       .tokens = out,
                       .tops = out + limits_.rows,
                       .workspace = workspace_.get(),
                       .rows = launched,
                       .vocab = vocab},
                      stream);
}

cudaError_t SampleBuffers::Fetch(cudaStream_t stream, int64_t* bytes) {
  *bytes = 0;
  if (batch_ == nullptr) return cudaSuccess;
  SampledToken* const host = static_cast<SampledToken*>(host_out_.get());
  const SampledToken* const device = static_cast<const SampledToken*>(device_out_.get());
  const auto fetch = [&](size_t at, size_t count) {
    if (count == 0) return cudaSuccess;
    *bytes += int64_t(count * sizeof(SampledToken));
    return cudaMemcpyAsync(host + at, device + at, count * sizeof(SampledToken), cudaMemcpyDeviceToHost, stream);
  };
  if (const cudaError_t error = fetch(0, batch_->tokens.size()); error != cudaSuccess) return error;
  return fetch(size_t(limits_.rows), batch_->tops.size());
}

void SampleBuffers::Take() const {
  if (batch_ == nullptr) return;
  const SampledToken* const host = static_cast<const SampledToken*>(host_out_.get());
  std::copy_n(host, batch_->tokens.size(), batch_->tokens.begin());
  std::copy_n(host + limits_.rows, batch_->tops.size(), batch_->tops.begin());
}

}  // namespace sluice::kernels::cuda
