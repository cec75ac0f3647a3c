// The one compute interface: what a device can do for a decoder-only transformer, in coarse phases so that each backend
// can fuse inside them. A backend knows shapes and memory; it knows nothing of models, requests or schedulers.
//
// Promises of every backend (held by kernels/conformance, which each backend passes unchanged):
//  - A row's result depends on that row and its keys alone: not on the rows beside it, their number, their order, or on
//    how a sequence was cut into chunks. Equal inputs give equal bits.
//  - Attention reads K and V as stored, the current rows included.
//  - No allocation inside a step; no phase throws. Programmer errors CHECK; device errors surface in Finish().
//
// Life: Backend -> Weight handles (packed once from host tensors), KvPool, Context. A step is
//   ctx.BeginStep(batch)  -> phases in the order the model asks for -> ctx.Finish().
// Phases are asynchronous in the order of issue; host-visible results are valid after Finish().
//
// Threads: a Context is used by one thread at a time. Weights and the Backend are immutable and shared.
//
// Activations are opaque rows in the backend's own type (ActDType is the backend's business); `x`, the residual stream,
// is always f32 in meaning. Every buffer comment gives [rows][cols], row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collective.h"
#include "kernels/device_links.h"
#include "kernels/dtype.h"
#include "kernels/kv_layout.h"
#include "kernels/sampling.h"

namespace sluice::kernels {

// A tensor packed for one backend. Opaque; the backend that made it is the only one that looks inside.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 protected:
  Weight(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}

 private:
  int64_t rows_, cols_;
};

// Device memory for the rows of one activation: [max_rows][cols]. Owned by the Context that made it.
class Activation {
 public:
  virtual ~Activation() = default;
  int cols() const { return cols_; }

 protected:
  explicit Activation(int cols) : cols_(cols) {}

 private:
  int cols_;
};

// Part of a pool, as it moves between pools: [layer][block][K|V][kv head] runs of layout().head_bytes(), in this order.
struct KvSlice {
  int layer_begin = 0, layer_end = 0;
  int head_begin = 0, head_end = 0;  // of the pool
  std::span<const int32_t> blocks;   // ids in the pool
};
inline size_t SliceBytes(const KvSlice& s, const KvLayout& layout) {
  return size_t(s.layer_end - s.layer_begin) * s.blocks.size() * 2 * size_t(s.head_end - s.head_begin) *
         layout.head_bytes();
}

// A pool in the memory of a device, for who moves KV: between it and host memory, with the checksum of kv_checksum.h on
// the way. May be called on any thread, beside steps: what a slice names is the caller's to read or write. Returns when
// the bytes are there.
class DeviceKv {
 public:
  virtual ~DeviceKv() = default;
  virtual absl::StatusOr<uint64_t> Gather(const KvSlice& slice, std::span<std::byte> out) = 0;
  virtual absl::StatusOr<uint64_t> Scatter(const KvSlice& slice, std::span<const std::byte> in) = 0;

  // To the devices of other processes; lives as long as the pool. null: the pool is no one device's memory, and moves
  // by way of the host only.
  virtual DeviceLinks* links() { return nullptr; }

  // The same where the run is device memory too, of a DeviceBuffer: nothing touches the host but the checksum.
  // REQUIRES: links().
  virtual absl::StatusOr<uint64_t> GatherOnDevice(const KvSlice&, std::span<std::byte>) {
    return absl::UnimplementedError("KV gathered on the device");
  }
  virtual absl::StatusOr<uint64_t> ScatterOnDevice(const KvSlice&, std::span<const std::byte>) {
    return absl::UnimplementedError("KV scattered on the device");
  }
};

// The KV blocks of one layer group. Layout: kv_layout.h.
class KvPool {
 public:
  virtual ~KvPool() = default;
  const KvLayout& layout() const { return layout_; }
  int num_blocks() const { return num_blocks_; }

  // Start of a layer's region, [num_blocks] blocks of layout().block_bytes(). Device memory.
  virtual void* layer_data(int layer) = 0;

  // Copies all layers of one block; ordered before every later step (copy on write). An error is the device's, and ends the
  // engine: the block is not what its sequence needs.
  virtual absl::Status CopyBlock(int from, int to) = 0;

  // null: the pool is in host memory, and layer_data is all it takes to move it.
  virtual DeviceKv* device() { return nullptr; }

 protected:
  KvPool(const KvLayout& layout, int num_blocks) : layout_(layout), num_blocks_(num_blocks) {}

 private:
  KvLayout layout_;
  int num_blocks_;
};

// The rows of one step, grouped by sequence: host arrays that must stay alive until Finish().
// The rows of a sequence are consecutive tokens; the last of them has context_len - 1 as its position.
struct StepBatch {
  std::span<const int32_t> tokens;       // [rows] input token of each row
  std::span<const int32_t> row_begin;    // [seqs + 1] first row of each sequence; row_begin[seqs] == rows
  std::span<const int32_t> context_len;  // [seqs] tokens whose K/V exist after this step, this step's rows included
  std::span<const int32_t> block_table;  // [seqs][max_blocks] block ids; entries past the context are ignored
  int max_blocks = 0;                    // stride of block_table
  std::span<const int32_t> logit_rows;   // [logits] rows whose logits are wanted, ascending
  // What becomes of the logits, where the context samples (Context::sample_limits); null: the host wants them all.
  const SampleBatch* sampling = nullptr;

  int rows() const { return int(tokens.size()); }
  int seqs() const { return int(context_len.size()); }
};

// What rows of an activation hold: the residual stream, which is f32 in every backend, or what flows between products,
// in the backend's own type.
enum class ActivationUse : uint8_t { kResidual, kProducts };

enum class RopeStyle : uint8_t {
  kInterleaved,  // pairs (0,1), (2,3), ...: llama-arch GGUF files, whose q/k rows are permuted for it
  kHalfSplit,    // pairs (0, d/2), (1, d/2+1), ...: "NEOX"
};

enum class MlpActivation : uint8_t { kSilu, kGeluTanh };

// x[row] = scale * table[token[row]]
struct EmbedParams {
  const Weight* table = nullptr;  // [vocab][hidden]
  float scale = 1.0f;
  Activation* x = nullptr;  // out [rows][hidden]
};

// h = rms_norm(x) * norm;  q, k, v = h Wᵀ (+ bias)
struct NormQkvParams {
  const Activation* x = nullptr;  // [rows][hidden]
  const Weight* norm = nullptr;   // [1][hidden]
  float eps = 1e-5f;
  const Weight* wq = nullptr;  // [heads * head_dim][hidden]
  const Weight* wk = nullptr;  // [kv_heads * head_dim][hidden]
  const Weight* wv = nullptr;  // [kv_heads * head_dim][hidden]
  const Weight* bq = nullptr;  // [1][heads * head_dim] or null
  const Weight* bk = nullptr;
  const Weight* bv = nullptr;
  Activation* q = nullptr;  // out [rows][heads * head_dim]
  Activation* k = nullptr;  // out [rows][kv_heads * head_dim]
  Activation* v = nullptr;  // out [rows][kv_heads * head_dim]
};

// Rotates q and k in place by each row's position and stores k and v at that position's slot.
struct RopeKvParams {
  Activation* q = nullptr;        // in/out [rows][heads * head_dim]
  Activation* k = nullptr;        // in/out [rows][kv_heads * head_dim]
  const Activation* v = nullptr;  // [rows][kv_heads * head_dim]
  const Weight* rope = nullptr;   // [max_positions][rotary_dim]: cos of all pairs, then sin of all pairs
  int rotary_dim = 0;             // leading dims of a head that rotate
  RopeStyle style = RopeStyle::kInterleaved;
  KvPool* kv = nullptr;
  int layer = 0;  // in the pool
};

// out = softmax(scale * q Kᵀ + causal mask) V over the row's own sequence, grouped-query.
struct AttentionParams {
  const Activation* q = nullptr;  // [rows][heads * head_dim]
  Activation* out = nullptr;      // out [rows][heads of all ranks * head_dim]
  int first_head = 0;             // where these heads go in out
  const KvPool* kv = nullptr;
  int layer = 0;
  int num_heads = 0;  // a multiple of the context's KV heads
  float scale = 0.0f;
};

// x[column : column + rows of w] += in Wᵀ: the output of attention, and of an MLP.
struct ProjectParams {
  const Activation* in = nullptr;  // [rows][cols of w]
  const Weight* w = nullptr;
  Activation* x = nullptr;  // in/out [rows][hidden]
  int64_t column = 0;
};

// g = rms_norm(x) * norm;  h[column : column + rows of gate] = act(g Wgᵀ) * (g Wuᵀ)
struct GateUpParams {
  const Activation* x = nullptr;  // [rows][hidden]
  const Weight* norm = nullptr;   // [1][hidden]
  float eps = 1e-5f;
  const Weight* gate = nullptr;  // [ffn][hidden]
  const Weight* up = nullptr;    // [ffn][hidden]
  MlpActivation activation = MlpActivation::kSilu;
  Activation* h = nullptr;  // out [rows][ffn]
  int64_t column = 0;
};

// For the rows in StepBatch::logit_rows only: logits = (rms_norm(x) * norm) Wᵀ
struct HeadParams {
  const Activation* x = nullptr;  // [rows][hidden]
  const Weight* norm = nullptr;   // [1][hidden]
  float eps = 1e-5f;
  const Weight* head = nullptr;  // [vocab][hidden], or a part of its rows, or null for no part
  int64_t first = 0;             // of the vocabulary that `head` begins with; a multiple of kLogitBlock
  int64_t vocab = 0;             // of all parts; 0: head's rows
  float* logits = nullptr;       // out, host memory [logits][vocab], valid after Finish() where StepBatch::sampling
                                 // leaves the row to the host
  float* maxima = nullptr;       // likewise [logits][NumLogitBlocks(vocab)], or null: the largest of each kLogitBlock
                                 // logits, NaN counting for nothing, so that nobody has to read all of them again
};

inline constexpr int kLogitBlock = 64;
constexpr int NumLogitBlocks(int64_t vocab) {
  return int((vocab + kLogitBlock - 1) / kLogitBlock);
}

// Of an instance of several ranks: every rank computed columns [borders[rank], borders[rank + 1]) and gets the others.
// Nothing for an instance of one.
struct GatherParams {
  Activation* rows = nullptr;
  std::span<const int64_t> borders;  // [ranks + 1]
};

// Likewise the logits of a step, which only rank 0 gets. Borders are multiples of kLogitBlock, but for the last.
struct GatherLogitsParams {
  float* logits = nullptr;  // [logits][vocab]
  float* maxima = nullptr;  // [logits][NumLogitBlocks(vocab)], or null
  int64_t vocab = 0;
  std::span<const int64_t> borders;
};

// Of the rank that has the logits of all: turns those that StepBatch::sampling does not leave to the host into tokens.
struct SampleParams {
  int64_t vocab = 0;
};

struct ContextLimits {
  int max_rows = 0;  // rows of a step
  int max_seqs = 0;
  int max_logits = 0;  // rows of logits
  int max_ffn = 0;     // widest MLP
  int max_hidden = 0;
  int max_vocab = 0;    // columns of logits
  int max_context = 0;  // tokens of a sequence
  int max_blocks = 0;   // of a sequence
  int num_heads = 0;    // query heads of this rank
  int head_dim = 0;
  Collective* collective = nullptr;  // of the ranks of an instance (collective.h); null: alone
  // KV heads of the pool that this context writes and reads: those that its q, k and v are of.
  int first_kv_head = 0;
  int num_kv_heads = 0;  // 0: all
};

// One stream of work: scratch memory, the plan of the current step, and later events and captured graphs.
class Context {
 public:
  virtual ~Context() = default;

  virtual absl::StatusOr<std::unique_ptr<Activation>> NewActivation(int cols, ActivationUse use) = 0;

  // Builds the step's plan (positions, slots, attention work items) once for all layers.
  virtual void BeginStep(const StepBatch& batch, const KvLayout& layout) = 0;

  virtual void Embed(const EmbedParams& p) = 0;
  virtual void NormQkv(const NormQkvParams& p) = 0;
  virtual void RopeKv(const RopeKvParams& p) = 0;
  virtual void Attention(const AttentionParams& p) = 0;
  virtual void Project(const ProjectParams& p) = 0;
  virtual void GateUp(const GateUpParams& p) = 0;
  virtual void Head(const HeadParams& p) = 0;
  virtual void Gather(const GatherParams& p) = 0;
  virtual void GatherLogits(const GatherLogitsParams& p) = 0;
  virtual void Sample(const SampleParams& p) = 0;

  // What Sample can do. Nothing where the logits are in host memory anyway.
  virtual SampleLimits sample_limits() const = 0;

  // Bytes of results that steps have brought from the device's memory to the host's, since the start.
  virtual int64_t bytes_to_host() const = 0;

  // Waits for what was issued so far: then the KV of these layers may leave. Nothing to do where phases run when they
  // are issued; an error is Finish's.
  virtual void AwaitIssued() = 0;

  // Waits for the step. An error here is the step's, and the context is unusable if it is not OK.
  virtual absl::Status Finish() = 0;

  // Steps of one token a sequence, all with logits, look alike, and a device may record the phases of one to run them
  // again at the cost of one launch. Between BeginStep and the phases: if Replay returns true, the step's phases have
  // been issued, with all parameters as recorded but where results go; do not issue them. Else, if BeginCapture does,
  // they are only recorded up to EndCapture, which then issues them. Both return false where the step or the backend
  // has no use for it; then phases are issued as they come. What a recorded phase names (weights, activations, the
  // pool) must outlive the context.
  virtual bool Replay(float* logits, float* maxima) = 0;
  virtual bool BeginCapture() = 0;
  virtual void EndCapture() = 0;
};

// Host memory for a packed matrix, aligned to 64 bytes; the backend's own where data is null.
struct PackedMemory {
  std::byte* data = nullptr;
  bool filled = false;  // holds what the same backend packed from the same tensor before
};

// A device. Immutable after creation.
class Backend {
 public:
  virtual ~Backend() = default;

  // Short versioned name of the arithmetic. Workers with different ids are never paired and share no prefix blocks.
  virtual std::string_view numerics_id() const = 0;
  virtual KvDType kv_dtype() const = 0;

  // Whether pools lie in a device's memory: then a rank has one of its own KV heads alone (kv_layout's num_kv_heads are
  // its own, and ContextLimits::first_kv_head is 0).
  virtual bool has_own_memory() const { return false; }

  // Bytes of the device's memory that are free now, for a backend whose memory is not the host's.
  virtual std::optional<int64_t> FreeMemory() const { return std::nullopt; }

  // A tensor whose rows are read: embeddings, norms, biases, the RoPE table. A backend may read it in place: the bytes
  // must outlive the weight.
  virtual absl::StatusOr<std::unique_ptr<Weight>> PackTable(const HostTensor& tensor) const = 0;

  // A matrix that rows are multiplied by: projections and the head. Likewise, but where it is copied it goes to
  // `memory`, of PackedBytes(), if that is given: it must outlive the weight, and may be shared and read-only where it
  // is filled already.
  virtual absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor, PackedMemory memory) const = 0;
  absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor) const { return PackLinear(tensor, {}); }

  // Rows [first, first + rows) of a table as a matrix, in the table's memory, which must outlive it: an embedding that
  // is the head as well. Null where the two are kept differently, or tables are read in place anyway: then pack it.
  virtual std::unique_ptr<Weight> LinearOfTable(const Weight& table, int64_t first, int64_t rows) const {
    (void)table, (void)first, (void)rows;
    return nullptr;
  }

  // Short versioned name of what PackLinear writes: backends of one name can share it.
  virtual std::string_view packing_id() const = 0;

  // What PackLinear writes for a matrix of that type and size; 0 where it copies nothing in host memory.
  virtual size_t PackedBytes(const HostTensor& tensor) const = 0;

  // `memory`, as large as the pool (CpuKvPoolBytes on a CPU) and zero at first, is used where it is given, and must
  // outlive the pool: that of several ranks, say.
  virtual absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks,
                                                            std::byte* memory) const = 0;
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks) const {
    return NewKvPool(layout, num_blocks, nullptr);
  }
  virtual absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const = 0;
};

}  // namespace sluice::kernels
