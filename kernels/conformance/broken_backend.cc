#include "kernels/conformance/broken_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "glog/logging.h"

namespace sluice::kernels::conformance {
namespace {

void FlipLowBit(float* value) {
  uint32_t bits;
  std::memcpy(&bits, value, sizeof bits);
  bits ^= 1;
  std::memcpy(value, &bits, sizeof bits);
}

// Its own pool, so that CopyBlock can be broken; the memory is the good one's.
class BrokenPool final : public KvPool {
 public:
  BrokenPool(std::unique_ptr<KvPool> good, Fault fault)
      : KvPool(good->layout(), good->num_blocks()), good_(std::move(good)), fault_(fault) {}
  void* layer_data(int layer) override { return good_->layer_data(layer); }
  absl::Status CopyBlock(int from, int to) override {
    if (fault_ != Fault::kCopiesKOnly) return good_->CopyBlock(from, to);
    for (int layer = 0; layer < layout().num_layers; ++layer) {
      auto* data = static_cast<uint8_t*>(layer_data(layer));
      std::memcpy(data + layout().offset(to, 0, 0, 0), data + layout().offset(from, 0, 0, 0), layout().plane_bytes());
    }
    return absl::OkStatus();
  }
  KvPool* good() const { return good_.get(); }
  float* vector(int layer, int block, int is_v, int head, int slot) const {
    return reinterpret_cast<float*>(static_cast<uint8_t*>(good_->layer_data(layer)) +
                                    layout().offset(block, is_v, head, slot));
  }
  std::map<std::pair<int, int64_t>, std::vector<float>> written;  // (layer, block and slot): all K and V of its token

 private:
  const std::unique_ptr<KvPool> good_;
  const Fault fault_;
};

class BrokenContext final : public Context {
 public:
  BrokenContext(std::unique_ptr<Context> good, Fault fault) : good_(std::move(good)), fault_(fault) {}

  absl::StatusOr<std::unique_ptr<Activation>> NewActivation(int cols, ActivationUse use) override {
    return good_->NewActivation(cols, use);
  }

  void BeginStep(const StepBatch& batch, const KvLayout& layout) override {
    batch_ = batch;
    table_.assign(batch.block_table.begin(), batch.block_table.end());
    logit_rows_.assign(batch.logit_rows.begin(), batch.logit_rows.end());
    for (int seq = 0; seq < batch.seqs(); ++seq) {
      int32_t* const blocks = table_.data() + int64_t(seq) * batch.max_blocks;
      const int used = BlocksFor(batch.context_len[size_t(seq)], layout.block_size);
      if (fault_ == Fault::kBlocksInOrder) std::sort(blocks, blocks + used);
      if (fault_ == Fault::kReadsUnusedEntries) {
        for (int i = used; i < batch.max_blocks; ++i) outside_ |= blocks[i] < 0;
      }
    }
    if (fault_ == Fault::kLogitsOfOtherRows) {
      for (size_t i = 0; i < logit_rows_.size(); ++i) logit_rows_[i] = int32_t(i);
    }
    batch_.block_table = table_;
    batch_.logit_rows = logit_rows_;
    good_->BeginStep(batch_, layout);
  }

  void Embed(const EmbedParams& p) override { good_->Embed(p); }
  void NormQkv(const NormQkvParams& p) override { good_->NormQkv(p); }
  void RopeKv(const RopeKvParams& p) override {
    BrokenPool& pool = static_cast<BrokenPool&>(*p.kv);
    RopeKvParams good = p;
    good.kv = pool.good();
    good_->RopeKv(good);
    for (int seq = 0; seq < batch_.seqs(); ++seq) BreakKv(pool, p.layer, seq);
  }
  void Attention(const AttentionParams& p) override {
    AttentionParams good = p;
    good.kv = static_cast<const BrokenPool*>(p.kv)->good();
    good_->Attention(good);
  }
  void Project(const ProjectParams& p) override { good_->Project(p); }
  void GateUp(const GateUpParams& p) override { good_->GateUp(p); }
  void Gather(const GatherParams& p) override { good_->Gather(p); }
  void GatherLogits(const GatherLogitsParams& p) override { good_->GatherLogits(p); }
  void Sample(const SampleParams& p) override { good_->Sample(p); }
  SampleLimits sample_limits() const override { return good_->sample_limits(); }
  int64_t bytes_to_host() const override { return good_->bytes_to_host(); }
  void Head(const HeadParams& p) override {
    good_->Head(p);
    logits_ = p.logits;
    vocab_ = p.head->rows();
  }
  void AwaitIssued() override { good_->AwaitIssued(); }
  absl::Status Finish() override {
    absl::Status done = good_->Finish();
    for (size_t i = 0; i < logit_rows_.size(); ++i) BreakLogits(logits_ + int64_t(i) * vocab_, logit_rows_[i]);
    return done;
  }
  bool Replay(float* logits, float* maxima) override { return good_->Replay(logits, maxima); }
  bool BeginCapture() override { return good_->BeginCapture(); }
  void EndCapture() override { good_->EndCapture(); }

 private:
  void BreakLogits(float* logits, int row) {
    const auto next = std::upper_bound(batch_.row_begin.begin(), batch_.row_begin.end(), row);
    const bool first_of_sequence = *(next - 1) == row;
    const bool last_sequence = next + 1 == batch_.row_begin.end();
    const bool others = batch_.seqs() > 1;
    if ((fault_ == Fault::kLogitsDependOnBatch && others) ||
        (fault_ == Fault::kLogitsDependOnOrder && others && last_sequence) ||
        (fault_ == Fault::kLogitsDependOnChunk && !first_of_sequence) || outside_) {
      FlipLowBit(logits + row % vocab_);
    }
  }

  template <typename Use>
  static void ForEachVector(const BrokenPool& pool, int layer, int64_t block, int slot, Use use) {
    for (int is_v : {0, 1}) {
      for (int head = 0; head < pool.layout().num_kv_heads; ++head) {
        use(pool.vector(layer, int(block), is_v, head, slot));
      }
    }
  }

  void BreakKv(BrokenPool& pool, int layer, int seq) {
    const int size = pool.layout().block_size;
    const int rows = batch_.row_begin[size_t(seq) + 1] - batch_.row_begin[size_t(seq)];
    const int end = batch_.context_len[size_t(seq)];
    const int32_t* const blocks = table_.data() + int64_t(seq) * batch_.max_blocks;
    for (int position = end - rows; position < end; ++position) {
      const int32_t block = blocks[position / size];
      if (fault_ == Fault::kKvDependsOnChunk && rows > 4 && layer == pool.layout().num_layers - 1) {
        FlipLowBit(pool.vector(layer, block, 1, 0, position % size));
      }
      if (fault_ == Fault::kDraftsLeaveATrace) Keep(pool, layer, block, position % size);
    }
  }

  // Puts back what lay there, if this step is not the first to write there.
  void Keep(BrokenPool& pool, int layer, int32_t block, int slot) {
    std::vector<float>& old = pool.written[{layer, int64_t(block) * pool.layout().block_size + slot}];
    const auto dim = pool.layout().head_dim;
    const bool first = old.empty();
    size_t at = 0;
    ForEachVector(pool, layer, block, slot, [&](float* v) {
      if (first) {
        old.insert(old.end(), v, v + dim);
      } else {
        std::copy_n(old.begin() + int64_t(at), dim, v);
        at += size_t(dim);
      }
    });
  }

  const std::unique_ptr<Context> good_;
  const Fault fault_;
  StepBatch batch_;
  std::vector<int32_t> table_, logit_rows_;
  bool outside_ = false;
  float* logits_ = nullptr;
  int64_t vocab_ = 1;
};

class BrokenBackend final : public Backend {
 public:
  BrokenBackend(std::unique_ptr<Backend> good, Fault fault) : good_(std::move(good)), fault_(fault) {
    CHECK(good_->kv_dtype() == KvDType::kF32);
  }
  std::string_view numerics_id() const override { return good_->numerics_id(); }
  KvDType kv_dtype() const override { return good_->kv_dtype(); }
  absl::StatusOr<std::unique_ptr<Weight>> PackTable(const HostTensor& tensor) const override {
    return good_->PackTable(tensor);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor, PackedMemory memory) const override {
    return good_->PackLinear(tensor, memory);
  }
  std::string_view packing_id() const override { return good_->packing_id(); }
  size_t PackedBytes(const HostTensor& tensor) const override { return good_->PackedBytes(tensor); }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks,
                                                    std::byte* memory) const override {
    auto made = good_->NewKvPool(layout, num_blocks, memory);
    if (!made.ok()) return made.status();
    return std::make_unique<BrokenPool>(*std::move(made), fault_);
  }
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const override {
    auto made = good_->NewContext(limits);
    if (!made.ok()) return made.status();
    return std::make_unique<BrokenContext>(*std::move(made), fault_);
  }

 private:
  const std::unique_ptr<Backend> good_;
  const Fault fault_;
};

}  // namespace

Variant Break(Variant variant, Fault fault) {
  return {variant.name, [make = std::move(variant.make), fault]() -> absl::StatusOr<std::unique_ptr<Backend>> {
            auto made = make();
            if (!made.ok()) return made.status();
            return std::make_unique<BrokenBackend>(*std::move(made), fault);
          }};
}

}  // namespace sluice::kernels::conformance
