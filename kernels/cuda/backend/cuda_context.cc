#include "kernels/cuda/backend/cuda_context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/rows/block_maxima.h"
#include "kernels/cuda/rows/embed.h"
#include "kernels/cuda/rows/rms_norm.h"
#include "kernels/cuda/rows/rope_kv.h"

namespace sluice::kernels::cuda {
namespace {

const CudaWeight& Of(const Weight* weight) {
  return static_cast<const CudaWeight&>(*weight);
}
const CudaActivation& Of(const Activation* activation) {
  return static_cast<const CudaActivation&>(*activation);
}

const float* BiasOf(const Weight* bias) {
  return bias == nullptr ? nullptr : Of(bias).f32();
}

GemmPart Part(const Weight* w, const float* bias, void* out, int64_t stride) {
  return {Of(w).bf16(), Of(w).int8(), bias, out, stride, int(w->rows())};
}

// `out` is of an activation in bf16, from `column` on.
GemmPart Part(const Weight* w, const Weight* bias, const Activation* out, int64_t column = 0) {
  return Part(w, BiasOf(bias), Of(out).bf16() + column, Of(out).stride());
}

absl::Status CheckLimits(const ContextLimits& l) {
  for (const auto& [name, value] : {std::pair("max_rows", l.max_rows),
                                    {"max_seqs", l.max_seqs},
                                    {"max_logits", l.max_logits},
                                    {"max_ffn", l.max_ffn},
                                    {"max_hidden", l.max_hidden},
                                    {"max_vocab", l.max_vocab},
                                    {"max_context", l.max_context},
                                    {"max_blocks", l.max_blocks},
                                    {"num_heads", l.num_heads},
                                    {"num_kv_heads", l.num_kv_heads},
                                    {"head_dim", l.head_dim}}) {
    if (value <= 0) return absl::InvalidArgumentError(absl::StrCat("context: ", name, " must be positive"));
  }
  if (l.num_heads % l.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("context: ", l.num_heads, " heads to ", l.num_kv_heads, " KV heads"));
  }
  return absl::OkStatus();
}

// So much lets every shape of a product be shared among blocks that fill a large GPU (gemm.cu).
size_t GemmSpace(const ContextLimits& l) {
  constexpr size_t kSlices = 8, kMost = kSlices * 132 * 128 * 128 * sizeof(float);
  const size_t widest = size_t(std::max(3 * l.max_hidden, 2 * l.max_ffn));
  return std::min(kMost, kSlices * size_t(l.max_rows) * widest * sizeof(float));
}

// All rows of the widest activation, in parts up to half as wide again as even ones would be; at least a row of logits.
size_t ExchangeSpace(const ContextLimits& l, int ranks) {
  const size_t row =
      std::max(size_t(PaddedRow(l.max_hidden)) * sizeof(float), size_t(PaddedRow(l.max_ffn)) * sizeof(__nv_bfloat16));
  const size_t logits = size_t(l.max_vocab + kLogitBlock * ranks) * sizeof(float);
  const size_t bytes = std::max(size_t(l.max_rows) * row / 2 * 3, 2 * logits) + size_t(ranks) * 4096;
  return bytes / size_t(16 * ranks) * size_t(16 * ranks);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(const ContextLimits& limits, const Device& device,
                                                                 const CudaOptions& options, const LtLibrary* lt) {
  if (absl::Status status = CheckLimits(limits); !status.ok()) return status;
  std::unique_ptr<CudaContext> context(new CudaContext(limits, device, options));
  if (absl::Status status = context->Allocate(); !status.ok()) return status;
  if (lt != nullptr) {
    if (absl::Status status = context->StartLt(*lt); !status.ok()) return status;
  }
  if (absl::Status status = context->Meet(options); !status.ok()) return status;
  return context;
}

absl::Status CudaContext::Allocate() {
  if (absl::Status status = device_.MakeCurrent(); !status.ok()) return status;
  shape_ = {.group = limits_.num_heads / limits_.num_kv_heads, .head_dim = limits_.head_dim};
  absl::StatusOr<StepBuffers> step = StepBuffers::Create(limits_, shape_);
  if (!step.ok()) return step.status();
  step_ = *std::move(step);
  gemm_bytes_ = GemmSpace(limits_);
  const size_t logits = size_t(limits_.max_logits) *
                        (size_t(limits_.max_vocab) + size_t(NumLogitBlocks(limits_.max_vocab))) * sizeof(float);
  for (const auto& [memory, bytes, what] :
       {std::tuple(&normed_, size_t(limits_.max_rows) * size_t(PaddedRow(limits_.max_hidden)) * sizeof(__nv_bfloat16),
                   "normed rows"),
        {&logits_, logits, "logits"},
        {&gemm_space_, gemm_bytes_, "scratch of products"},
        {&attention_space_, AttentionWorkspace(step_.capacity().partials, limits_.num_heads, limits_.head_dim),
         "scratch of attention"}}) {
    absl::StatusOr<DeviceMemory> made = NewDeviceMemory(bytes, what);
    if (!made.ok()) return made.status();
    *memory = *std::move(made);
  }
  absl::StatusOr<SampleBuffers> samples = SampleBuffers::Create(limits_);
  if (!samples.ok()) return samples.status();
  samples_ = *std::move(samples);
  return absl::OkStatus();
}

absl::Status CudaContext::StartLt(const LtLibrary& lt) {
  constexpr size_t kSpace = size_t(32) << 20;  // what the library is recommended to have
  auto space = NewDeviceMemory(kSpace, "scratch of cuBLASLt");
  if (!space.ok()) return space.status();
  lt_space_ = *std::move(space);
  auto made = LtGemm::Create(lt, lt_space_.get(), kSpace);
  if (!made.ok()) return made.status();
  lt_ = *std::move(made);
  return absl::OkStatus();
}

absl::Status CudaContext::Meet(const CudaOptions& options) {
  if (limits_.collective == nullptr || limits_.collective->size() == 1) return absl::OkStatus();
  auto ranks = RankExchange::Create(limits_.collective, device_.stream(),
                                    {.library = options.nccl_library,
                                     .timeout = options.rank_timeout,
                                     .buffer_bytes = ExchangeSpace(limits_, limits_.collective->size())});
  if (!ranks.ok()) return ranks.status();
  ranks_ = *std::move(ranks);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Activation>> CudaContext::NewActivation(int cols, ActivationUse use) {
  if (cols <= 0) return absl::InvalidArgumentError(absl::StrCat("an activation of ", cols, " columns"));
  if (absl::Status status = device_.MakeCurrent(); !status.ok()) return status;
  const size_t element = use == ActivationUse::kResidual ? sizeof(float) : sizeof(__nv_bfloat16);
  absl::StatusOr<DeviceMemory> memory =
      NewDeviceMemory(size_t(limits_.max_rows) * size_t(PaddedRow(cols)) * element, "an activation");
  if (!memory.ok()) return memory.status();
  return std::make_unique<CudaActivation>(cols, use == ActivationUse::kResidual, *std::move(memory));
}

void CudaContext::Note(cudaError_t error, const char* phase) {
  if (error != cudaSuccess && status_.ok()) status_ = ToStatus(error, phase);
}

void CudaContext::Note(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

void CudaContext::BeginStep(const StepBatch& batch, const KvLayout& layout) {
  if (absl::Status status = device_.MakeCurrent(); !status.ok() && status_.ok()) status_ = status;
  CHECK_EQ(layout.head_dim, limits_.head_dim);
  CHECK_LE(limits_.first_kv_head + limits_.num_kv_heads, layout.num_kv_heads);
  layout_ = layout;
  batch_logits_ = int(batch.logit_rows.size());
  CHECK_LE(batch_logits_, limits_.max_logits);
  const int padded = PaddedRows(batch.rows());
  alike_ = use_graphs_ && batch.rows() == batch.seqs() && batch.rows() == batch_logits_ && batch.rows() > 0 &&
           padded <= std::min({limits_.max_rows, limits_.max_seqs, limits_.max_logits});
  rows_ = alike_ ? padded : batch.rows();
  num_logits_ = alike_ ? padded : batch_logits_;
  step_.Fill(batch, layout.block_size, rows_);
  Note(step_.Copy(device_.stream()), "metadata of the step");
  samples_.Fill(batch.sampling, num_logits_);
  Note(samples_.Copy(device_.stream()), "metadata of sampling");
  on_host_.assign(size_t(batch_logits_), limits_.collective == nullptr || limits_.collective->rank() == 0);
  if (batch.sampling != nullptr) {
    CHECK_EQ(batch.sampling->rows.size(), size_t(batch_logits_));
    for (size_t i = 0; i < on_host_.size(); ++i) on_host_[i] = batch.sampling->rows[i].kind == SampleKind::kHost;
  }
}

void CudaContext::Embed(const EmbedParams& p) {
  const CudaWeight& table = Of(p.table);
  Note(cuda::Embed({.tokens = step_.tokens(),
                    .f32_table = table.is_f32() ? table.f32() : nullptr,
                    .bf16_table = table.is_f32() ? nullptr : table.bf16(),
                    .table_stride = table.stride(),
                    .x = Of(p.x).f32(),
                    .x_stride = Of(p.x).stride(),
                    .rows = rows_,
                    .width = p.x->cols(),
                    .scale = p.scale},
                   device_.stream()),
       "embedding");
}

void CudaContext::Norm(const Activation* x, const Weight* weight, float eps, const int32_t* chosen, int rows,
                       const char* phase) {
  Note(RmsNorm({.x = Of(x).f32(),
                .x_stride = Of(x).stride(),
                .weight = Of(weight).f32(),
                .chosen = chosen,
                .out = static_cast<__nv_bfloat16*>(normed_.get()),
                .out_stride = Of(x).stride(),
                .rows = rows,
                .width = x->cols(),
                .eps = eps},
               device_.stream()),
       phase);
}

void CudaContext::Multiply(GemmArgs args, const char* phase) {
  args.workspace = gemm_space_.get();
  args.workspace_bytes = gemm_bytes_;
  if (lt_ == nullptr || args.m < gemm_rows_) {
    Note(Gemm(args, device_.stream()), phase);
  } else if (const absl::Status status = lt_->Multiply(args, device_.stream()); !status.ok()) {
    Note(absl::Status(status.code(), absl::StrCat(phase, ": ", status.message())));
  }
}

void CudaContext::NormQkv(const NormQkvParams& p) {
  Norm(p.x, p.norm, p.eps, nullptr, rows_, "norm before attention");
  Multiply({.a = static_cast<const __nv_bfloat16*>(normed_.get()),
            .a_stride = Of(p.x).stride(),
            .m = rows_,
            .k = int(Of(p.x).stride()),
            .parts = {Part(p.wq, p.bq, p.q), Part(p.wk, p.bk, p.k), Part(p.wv, p.bv, p.v)},
            .num_parts = 3,
            .output = GemmOutput::kBf16},
           "q, k and v");
}

void CudaContext::RopeKv(const RopeKvParams& p) {
  CHECK_EQ(Of(p.k).stride(), Of(p.v).stride());
  Note(cuda::RopeKv({.q = Of(p.q).bf16(),
                     .k = Of(p.k).bf16(),
                     .v = Of(p.v).bf16(),
                     .q_stride = Of(p.q).stride(),
                     .kv_stride = Of(p.k).stride(),
                     .rope = Of(p.rope).f32(),
                     .rope_stride = Of(p.rope).stride(),
                     .positions = step_.positions(),
                     .blocks = step_.blocks(),
                     .kv = p.kv->layer_data(p.layer),
                     .int8 = layout_.dtype == KvDType::kInt8,
                     .rows = rows_,
                     .heads = limits_.num_heads,
                     .kv_heads = limits_.num_kv_heads,
                     .head_dim = limits_.head_dim,
                     .pool_kv_heads = layout_.num_kv_heads,
                     .first_kv_head = limits_.first_kv_head,
                     .block_size = layout_.block_size,
                     .rotary_dim = p.rotary_dim,
                     .interleaved = p.style == RopeStyle::kInterleaved},
                    device_.stream()),
       "RoPE and the KV write");
}

void CudaContext::Attention(const AttentionParams& p) {
  CHECK_EQ(p.num_heads, limits_.num_heads);
  const CudaKvPool& pool = static_cast<const CudaKvPool&>(*p.kv);
  Note(cuda::Attention({.q = Of(p.q).bf16(),
                        .q_stride = Of(p.q).stride(),
                        .out = Of(p.out).bf16() + int64_t(p.first_head) * limits_.head_dim,
                        .out_stride = Of(p.out).stride(),
                        .kv = pool.layer(p.layer),
                        .layout = layout_,
                        .first_kv_head = limits_.first_kv_head,
                        .kv_heads = limits_.num_kv_heads,
                        .block_table = step_.block_table(),
                        .max_blocks = step_.max_blocks(),
                        .plan = step_.plan(),
                        .shape = shape_,
                        .capacity = alike_ ? step_.items_of(rows_) : step_.items(),
                        .workspace = attention_space_.get(),
                        .scale = p.scale},
                       device_.stream()),
       "attention");
}

void CudaContext::Project(const ProjectParams& p) {
  Multiply({.a = Of(p.in).bf16(),
            .a_stride = Of(p.in).stride(),
            .m = rows_,
            .k = int(Of(p.in).stride()),
            .parts = {Part(p.w, nullptr, Of(p.x).f32() + p.column, Of(p.x).stride())},
            .output = GemmOutput::kAdd},
           "projection");
}

void CudaContext::GateUp(const GateUpParams& p) {
  Norm(p.x, p.norm, p.eps, nullptr, rows_, "norm before the MLP");
  Multiply({.a = static_cast<const __nv_bfloat16*>(normed_.get()),
            .a_stride = Of(p.x).stride(),
            .m = rows_,
            .k = int(Of(p.x).stride()),
            .parts = {Part(p.gate, nullptr, p.h, p.column), Part(p.up, nullptr, p.h, p.column)},
            .num_parts = 2,
            .output = p.activation == MlpActivation::kSilu ? GemmOutput::kGatedSilu : GemmOutput::kGatedGelu},
           "gate and up");
}

void CudaContext::Head(const HeadParams& p) {
  if (p.head == nullptr || num_logits_ == 0) return;
  const int64_t vocab = p.vocab > 0 ? p.vocab : p.head->rows(), count = p.head->rows();
  CHECK_LE(vocab, limits_.max_vocab);
  Norm(p.x, p.norm, p.eps, step_.logit_rows(), num_logits_, "last norm");
  float* const logits = static_cast<float*>(logits_.get()) + p.first;
  Multiply({.a = static_cast<const __nv_bfloat16*>(normed_.get()),
            .a_stride = Of(p.x).stride(),
            .m = num_logits_,
            .k = int(Of(p.x).stride()),
            .parts = {Part(p.head, nullptr, logits, vocab)},
            .output = GemmOutput::kF32},
           "head");
  wanted_ = {p.logits, p.maxima, p.first, count, vocab};
  if (ranks_ == nullptr) FindMaxima();
}

void CudaContext::FindMaxima() {
  const int64_t first = wanted_.first, count = wanted_.count, vocab = wanted_.vocab;
  Note(BlockMaxima({.x = static_cast<float*>(logits_.get()) + first,
                    .x_stride = vocab,
                    .maxima = device_maxima() + first / kLogitBlock,
                    .maxima_stride = NumLogitBlocks(vocab),
                    .rows = num_logits_,
                    .width = int(count)},
                   device_.stream()),
       "maxima of logits");
}

void CudaContext::Gather(const GatherParams& p) {
  if (ranks_ == nullptr || !status_.ok()) return;
  const CudaActivation& rows = Of(p.rows);
  const int64_t element = rows.is_f32() ? sizeof(float) : sizeof(__nv_bfloat16);
  Note(ranks_->Gather(rows.bf16(), rows.stride() * element, rows_, p.borders, element, Collective::To::kAll));
}

void CudaContext::GatherLogits(const GatherLogitsParams& p) {
  if (ranks_ == nullptr || !status_.ok() || num_logits_ == 0) return;
  Note(ranks_->Gather(logits_.get(), p.vocab * int64_t(sizeof(float)), num_logits_, p.borders, sizeof(float),
                      Collective::To::kRank0));
  wanted_ = {p.logits, p.maxima, 0, p.vocab, p.vocab};
  if (ranks_->rank() == 0) FindMaxima();
}

void CudaContext::Await() {
  if (ranks_ == nullptr) {
    Note(cudaStreamSynchronize(device_.stream()), "the step");
  } else {
    Note(ranks_->Await("the step"));
  }
}

void CudaContext::Sample(const SampleParams& p) {
  if (num_logits_ == 0 || !leads()) return;
  Note(
      samples_.Launch(static_cast<float*>(logits_.get()), device_maxima(), num_logits_, int(p.vocab), device_.stream()),
      "sampling");
}

void CudaContext::AwaitIssued() {
  Await();
}

bool CudaContext::Replay(float* logits, float* maxima) {
  if (!alike_ || !graphs_.Has(rows_)) return false;
  wanted_.logits = logits;
  wanted_.maxima = maxima;
  Launch();
  return true;
}

bool CudaContext::BeginCapture() {
  if (!alike_ || !status_.ok()) return false;
  // What a library does at its first product of a shape may not be recorded.
  if (lt_ != nullptr && rows_ >= gemm_rows_ && met_.insert(rows_).second) return false;
  Note(graphs_.Begin(device_.stream()), "recording a step");
  return status_.ok();
}

void CudaContext::EndCapture() {
  Note(graphs_.End(device_.stream(), rows_), "recording a step");
  if (status_.ok()) Launch();
}

void CudaContext::Launch() {
  Note(graphs_.Launch(device_.stream(), rows_), "a recorded step");
}

// Straight to where they are wanted, which is not pinned: few rows take this way.
void CudaContext::FetchLogits(int begin, int end) {
  const auto& [to, to_maxima, first, count, vocab] = wanted_;
  const auto fetch = [&](float* out, const float* from, int64_t columns, int64_t at, int64_t width) {
    const int64_t place = begin * columns + at;
    Note(
        cudaMemcpy2DAsync(out + place, size_t(columns) * sizeof(float), from + place, size_t(columns) * sizeof(float),
                          size_t(width) * sizeof(float), size_t(end - begin), cudaMemcpyDeviceToHost, device_.stream()),
        "logits to the host");
    bytes_to_host_ += width * (end - begin) * int64_t(sizeof(float));
  };
  fetch(to, static_cast<const float*>(logits_.get()), vocab, first, count);
  if (to_maxima == nullptr) return;
  fetch(to_maxima, device_maxima(), NumLogitBlocks(vocab), first / kLogitBlock, NumLogitBlocks(count));
}

void CudaContext::FetchResults() {
  int64_t bytes = 0;
  Note(samples_.Fetch(device_.stream(), &bytes), "tokens to the host");
  bytes_to_host_ += bytes;
  for (int row = 0; row < batch_logits_;) {
    int end = row;
    while (end < batch_logits_ && on_host_[size_t(end)]) ++end;
    if (end > row) FetchLogits(row, end);
    row = end + 1;
  }
}

absl::Status CudaContext::Finish() {
  // What ranks wait for each other is watched; a copy that waits for it would not be.
  if (ranks_ != nullptr) Await();
  const bool has_results = batch_logits_ > 0 && leads();
  if (status_.ok() && has_results) FetchResults();
  if (status_.ok()) Note(cudaStreamSynchronize(device_.stream()), "the step");
  if (status_.ok() && has_results) samples_.Take();
  return status_;
}

}  // namespace sluice::kernels::cuda
