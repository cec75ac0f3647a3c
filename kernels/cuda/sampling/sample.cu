#include <limits>

#include "kernels/cuda/sampling/row.cuh"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/select.cuh"
#include "kernels/philox.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kChunkThreads = 256;
constexpr int kBlocksOfChunk = kSampleChunk / kLogitBlock;
constexpr int kMostBlocks = kMostSampleVocab / kLogitBlock;

// What the kernels of one launch tell each other of a row.
struct RowState {
  uint64_t cut;        // lowest rank that may be drawn
  double first_bid;    // of the likeliest token in the race
  float raw_max, max;  // before and after the edits
  int32_t token;       // where nothing is raced for
  int32_t races;
};

struct Bid {
  double e;
  int32_t id;
};

struct Work {
  SampleArgs args;
  int blocks, chunks;
  double mass_scale;
  RowState* states;  // [rows]
  double* sums;      // [rows][chunks] of weights at temperature 1, before the edits
  Bid* bids;         // [rows][chunks]
  uint64_t* masses;  // [rows][kWeightClasses]
  float* originals;  // [edits] the logits before

  __device__ LogitRow Row(int row) const {
    return {args.logits + int64_t(row) * args.vocab, args.maxima + int64_t(row) * blocks, args.vocab, blocks};
  }
  __device__ bool CutsTopK(const SampleRow& row) const { return row.top_k > 0 && row.top_k < args.vocab; }
  __device__ static bool CutsTopP(const SampleRow& row) {
    return row.kind == SampleKind::kDraw && row.temperature > 0.0f && row.top_p < 1.0f;
  }
  __device__ Weighing WeighingOf(const SampleRow& row, float max) const {
    return {max, 1.0 / double(row.temperature), mass_scale, WeightClassScale(row.temperature)};
  }
};

__device__ double UniformOf(const SampleRow& row, int id) {
  const PhiloxBlock block =
      Philox({{uint32_t(id) / 2, row.position, row.choice, 0}}, uint32_t(row.seed), uint32_t(row.seed >> 32));
  return id % 2 == 0 ? PhiloxUniform(block.word[0], block.word[1]) : PhiloxUniform(block.word[2], block.word[3]);
}

// The sum of a chunk, in the order of sampling_math.h: eight threads a block.
__global__ void __launch_bounds__(kChunkThreads) SumKernel(const Work work) {
  __shared__ float largest[32];
  __shared__ double blocks[kBlocksOfChunk];
  const SampleRow& of = work.args.rows_of[blockIdx.y];
  if (of.kind == SampleKind::kHost || of.logprobs < 0) return;
  const LogitRow row = work.Row(int(blockIdx.y));
  const float max = LargestOf(row, largest);
  const int lane = int(threadIdx.x) % kSampleLanes;
  for (int block = int(threadIdx.x) / kSampleLanes; block < kBlocksOfChunk; block += kChunkThreads / kSampleLanes) {
    const int first = (int(blockIdx.x) * kBlocksOfChunk + block) * kLogitBlock + lane;
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < kLogitBlock; i += kSampleLanes) {
      const int id = first + i;
      const double weight = id < row.vocab ? DetExp(WeightExponent(Clean(row.x[id]), max, 1.0)) : 0.0;
      sum = i == 0 ? weight : Plus(sum, weight);
    }
#pragma unroll
    for (int distance = 1; distance < kSampleLanes; distance *= 2) {
      sum = Plus(sum, __shfl_xor_sync(kAllLanes, sum, distance));
    }
    if (lane == 0) blocks[block] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0.0;
  for (int block = 0; block < kBlocksOfChunk; ++block) sum = Plus(sum, blocks[block]);
  work.sums[int64_t(blockIdx.y) * work.chunks + blockIdx.x] = sum;
}

struct TopsShared {
  uint64_t ranks[kMostSampleTops];
  int count;
};

// The alternatives, best first, with their logits in the place of log-probabilities.
__device__ void WriteTops(const LogitRow& row, int count, SampledToken* tops, TopsShared& found, SelectShared& select) {
  if (threadIdx.x == 0) found.count = 0;
  const uint64_t least = SelectBest(row, count, select);
  VisitBlocks(
      row, 0, row.blocks, [&](float maximum) { return RankBound(maximum) >= least; },
      [&](int id, float x) {
        const uint64_t rank = Rank(x, id);
        if (rank >= least) found.ranks[atomicAdd(&found.count, 1)] = rank;
      });
  __syncthreads();
  if (int(threadIdx.x) < count) {
    const uint64_t mine = found.ranks[threadIdx.x];
    int better = 0;
    for (int i = 0; i < count; ++i) better += found.ranks[i] > mine;
    const int id = int(~uint32_t(mine));
    tops[better] = {id, Clean(row.x[id])};
  }
  __syncthreads();
}

// In double: an infinity stays what it is, whatever finite number is applied.
__device__ float Edited(const SampleRow& of, const LogitEdit& edit, float x) {
  x = __fadd_rn(x, edit.bias);
  if (edit.count >= 0) {
    double logit = x;
    const double repetition = of.repetition_penalty;
    logit = logit > 0.0 ? logit / repetition : Times(logit, repetition);
    if (edit.count > 0) {
      logit = Plus(logit, -Plus(Times(double(of.frequency_penalty), edit.count), double(of.presence_penalty)));
    }
    x = float(logit);
  }
  return edit.masked != 0 ? NegativeInfinity() : x;
}

// Edits a row and renews the maxima of the blocks that this touches.
__device__ void Edit(const Work& work, const SampleRow& of, const LogitRow& row, uint32_t* touched) {
  Clear(touched, (row.blocks + 31) / 32);
  __syncthreads();
  for (int i = int(threadIdx.x); i < of.num_edits; i += int(blockDim.x)) {
    const LogitEdit edit = work.args.edits[of.first_edit + i];
    const float x = row.x[edit.id];
    work.originals[of.first_edit + i] = x;
    row.x[edit.id] = Edited(of, edit, x);
    const int block = edit.id / kLogitBlock;
    atomicOr(&touched[block / 32], 1u << block % 32);
  }
  __syncthreads();
  const int lane = int(threadIdx.x) % 32;
  for (int block = int(threadIdx.x) / 32; block < row.blocks; block += int(blockDim.x) / 32) {
    if ((touched[block / 32] >> block % 32 & 1) == 0) continue;
    const int id = block * kLogitBlock + lane;
    const float a = id < row.vocab ? row.x[id] : NegativeInfinity();
    const float b = id + 32 < row.vocab ? row.x[id + 32] : NegativeInfinity();
    const float largest = WarpMax(fmaxf(Clean(a), Clean(b)));
    if (lane == 0) row.maxima[block] = largest;
  }
}

__global__ void __launch_bounds__(kSelectThreads, 1) EditKernel(const Work work) {
  __shared__ SelectShared select;
  __shared__ TopsShared tops;
  __shared__ float largest[32];
  __shared__ uint32_t touched[kMostBlocks / 32];
  const SampleRow& of = work.args.rows_of[blockIdx.x];
  if (of.kind == SampleKind::kHost) return;
  const LogitRow row = work.Row(int(blockIdx.x));
  if (of.logprobs >= 0) {
    const float max = LargestOf(row, largest);
    if (threadIdx.x == 0) work.states[blockIdx.x].raw_max = max;
    if (of.logprobs > 0) WriteTops(row, of.logprobs, work.args.tops + of.first_top, tops, select);
  }
  if (of.num_edits > 0) Edit(work, of, row, touched);
  if (Work::CutsTopP(of)) Clear(work.masses + int64_t(blockIdx.x) * kWeightClasses, kWeightClasses);
}

// The masses of the classes of a chunk, where top-p looks at the whole vocabulary.
__global__ void __launch_bounds__(kChunkThreads) MassKernel(const Work work) {
  __shared__ uint32_t masses[kWeightClasses][2];
  __shared__ float largest[32];
  const SampleRow& of = work.args.rows_of[blockIdx.y];
  if (!Work::CutsTopP(of) || work.CutsTopK(of)) return;
  const LogitRow row = work.Row(int(blockIdx.y));
  Clear(&masses[0][0], 2 * kWeightClasses);
  const float max = LargestOf(row, largest);
  const Weighing weighing = work.WeighingOf(of, max);
  const int begin = int(blockIdx.x) * kSampleChunk;
  for (int i = int(threadIdx.x); i < kSampleChunk; i += kChunkThreads) {
    if (begin + i >= row.vocab) break;
    const float x = row.x[begin + i];
    const uint64_t mass = weighing.Mass(x);
    if (mass > 0) AddShared(masses[weighing.Class(x)], mass);
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < kWeightClasses; i += kChunkThreads) {
    unsigned long long* const to =
        reinterpret_cast<unsigned long long*>(work.masses + int64_t(blockIdx.y) * kWeightClasses + i);
    if (const uint64_t mass = SharedSum(masses[i]); mass > 0) atomicAdd(to, mass);
  }
}

// The lowest id of the largest logit.
__device__ int FirstOf(const LogitRow& row, float max, int* shared) {
  const auto least = [](int a, int b) { return a < b ? a : b; };
  int block = row.blocks;
  for (int b = int(threadIdx.x); b < row.blocks; b += int(blockDim.x)) {
    if (row.maxima[b] == max) block = least(block, b);
  }
  block = FoldThreads(block, least, shared);
  int id = row.vocab;
  if (threadIdx.x < kLogitBlock) {
    const int mine = block * kLogitBlock + int(threadIdx.x);
    if (mine < row.vocab && row.x[mine] == max) id = mine;
  }
  return FoldThreads(id, least, shared);
}

// The lowest rank that top-k and top-p leave.
__device__ uint64_t CutOf(const Work& work, const SampleRow& of, const LogitRow& row, float max, SelectShared& shared) {
  uint64_t cut = 0;
  if (work.CutsTopK(of)) cut = SelectBest(row, of.top_k, shared);
  if (!Work::CutsTopP(of)) return cut;
  const Weighing weighing = work.WeighingOf(of, max);
  Clear(&shared.masses[0][0], 2 * kWeightClasses);
  __syncthreads();
  if (work.CutsTopK(of)) {
    VisitBlocks(
        row, 0, row.blocks, [&](float maximum) { return RankBound(maximum) >= cut; },
        [&](int id, float x) {
          if (Rank(x, id) >= cut) AddShared(shared.masses[weighing.Class(x)], weighing.Mass(x));
        });
  } else {
    for (int i = int(threadIdx.x); i < kWeightClasses; i += kSelectThreads) {
      AddShared(shared.masses[i], work.masses[int64_t(blockIdx.x) * kWeightClasses + i]);
    }
  }
  __syncthreads();
  uint64_t total = 0;
  for (int i = int(threadIdx.x); i < kWeightClasses; i += kSelectThreads) total += SharedSum(shared.masses[i]);
  total = FoldThreads(
      total, [](uint64_t a, uint64_t b) { return a + b; }, shared.warp_sums);
  __syncthreads();
  const uint64_t wanted = NucleusMass(total, of.top_p);
  const Crossing crossing = FindCrossing(
      kWeightClasses, 0, wanted, [&](int i) { return SharedSum(shared.masses[i]); }, shared);
  return SelectMass(row, weighing, cut, crossing.at, crossing.before, wanted, shared);
}

// What may be drawn of a row, or the token itself where that needs no draw.
__global__ void __launch_bounds__(kSelectThreads, 1) CutKernel(const Work work) {
  __shared__ SelectShared select;
  __shared__ float largest[32];
  __shared__ int least[32];
  const SampleRow& of = work.args.rows_of[blockIdx.x];
  if (of.kind == SampleKind::kHost) return;
  RowState& state = work.states[blockIdx.x];
  const LogitRow row = work.Row(int(blockIdx.x));
  const bool draws = of.kind == SampleKind::kDraw;
  const float max = draws ? LargestOf(row, largest) : 0.0f;
  const bool drawable = draws && max > NegativeInfinity();
  const int first = drawable ? FirstOf(row, max, least) : of.token;
  const bool races = drawable && of.temperature > 0.0f;
  const uint64_t cut = races ? CutOf(work, of, row, max, select) : 0;
  if (threadIdx.x != 0) return;
  state.max = max;
  state.token = first;
  state.races = races;
  state.cut = cut;
  state.first_bid = races ? -DetLog(UniformOf(of, first)) : 0.0;
}

__device__ bool Beats(const Bid& a, const Bid& b) {
  return a.e < b.e || (a.e == b.e && a.id < b.id);
}

// What a token must bid to beat is known; most cannot, which their weight's power of two tells (AnyMayWin in
// engine/sampler_loops.h).
struct Race {
  const SampleRow& of;
  const RowState& state;
  double inverse, log2_scale, best;
  Bid bid{std::numeric_limits<double>::infinity(), std::numeric_limits<int32_t>::max()};

  __device__ Race(const SampleRow& row, const RowState& s)
      : of(row),
        state(s),
        inverse(1.0 / double(row.temperature)),
        log2_scale(0x1.71547652b82fep0 / double(row.temperature)),
        best(s.first_bid) {}

  __device__ void Offer(int id, float x) {
    if (Rank(x, id) < state.cut) return;
    x = Clean(x);
    const double u = UniformOf(of, id);
    double y = x == state.max ? 0.0 : (double(x) - double(state.max)) * log2_scale;
    y = y < -1000.0 ? -1000.0 : y;
    const double bound = std::bit_cast<double>((std::bit_cast<uint64_t>(y + math_internal::kRounder) + 1024) << 52);
    if (1.0 - u > best * bound) return;
    const double weight = DetExp(WeightExponent(x, state.max, inverse));
    if (weight == 0.0 || (weight < double(of.min_p) && weight < 1.0)) return;
    const Bid mine{-DetLog(u) / weight, id};
    if (Beats(mine, bid)) bid = mine;
    best = bid.e < best ? bid.e : best;
  }
};

__global__ void __launch_bounds__(kChunkThreads, 1) RaceKernel(const Work work) {
  __shared__ Bid bids[32];
  const SampleRow& of = work.args.rows_of[blockIdx.y];
  if (of.kind != SampleKind::kDraw) return;
  const RowState& state = work.states[blockIdx.y];
  if (state.races == 0) return;
  const LogitRow row = work.Row(int(blockIdx.y));
  Race race(of, state);
  const int begin = int(blockIdx.x) * kBlocksOfChunk, end = min(row.blocks, begin + kBlocksOfChunk);
  VisitBlocks(
      row, begin, end, [&](float maximum) { return RankBound(maximum) >= state.cut; },
      [&](int id, float x) { race.Offer(id, x); });
  const auto better = [](const Bid& a, const Bid& b) { return Beats(b, a) ? b : a; };
  Bid bid = race.bid;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Bid other{__shfl_xor_sync(kAllLanes, bid.e, distance), __shfl_xor_sync(kAllLanes, bid.id, distance)};
    bid = better(bid, other);
  }
  if (threadIdx.x % 32 == 0) bids[threadIdx.x / 32] = bid;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kChunkThreads / 32; ++warp) bid = better(bid, bids[warp]);
  work.bids[int64_t(blockIdx.y) * work.chunks + blockIdx.x] = bid;
}

// One warp a row.
__global__ void __launch_bounds__(32) ResultKernel(const Work work) {
  const SampleRow& of = work.args.rows_of[blockIdx.x];
  if (of.kind == SampleKind::kHost) return;
  const RowState& state = work.states[blockIdx.x];
  const LogitRow row = work.Row(int(blockIdx.x));
  const int lane = int(threadIdx.x);
  int token = state.token;
  if (state.races != 0) {
    Bid bid{std::numeric_limits<double>::infinity(), std::numeric_limits<int32_t>::max()};
    for (int chunk = lane; chunk < work.chunks; chunk += 32) {
      const Bid& other = work.bids[int64_t(blockIdx.x) * work.chunks + chunk];
      if (Beats(other, bid)) bid = other;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const Bid other{__shfl_xor_sync(kAllLanes, bid.e, distance), __shfl_xor_sync(kAllLanes, bid.id, distance)};
      if (Beats(other, bid)) bid = other;
    }
    token = bid.id;
  }
  if (of.logprobs < 0) {
    if (lane == 0) work.args.tokens[blockIdx.x] = {token, 0.0f};
    return;
  }
  double sum = 0.0;
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    sum = Plus(sum, work.sums[int64_t(blockIdx.x) * work.chunks + chunk]);
  }
  const double log_sum = DetLog(sum);
  const auto log_prob = [&](float x) {
    return float(Plus(x == state.raw_max ? 0.0 : double(x) - double(state.raw_max), -log_sum));
  };
  float logit = row.x[token];
  for (int i = 0; i < of.num_edits; i += 32) {
    const int edit = of.first_edit + i + lane;
    const bool found = i + lane < of.num_edits && work.args.edits[edit].id == token;
    const unsigned finder = __ballot_sync(kAllLanes, found);
    const float original = found ? work.originals[edit] : 0.0f;
    if (finder != 0) logit = __shfl_sync(kAllLanes, original, __ffs(int(finder)) - 1);
  }
  if (lane == 0) work.args.tokens[blockIdx.x] = {token, log_prob(Clean(logit))};
  for (int i = lane; i < of.logprobs; i += 32) {
    SampledToken& top = work.args.tops[of.first_top + i];
    top.logprob = log_prob(top.logprob);
  }
}

constexpr size_t kAligned = 256;
size_t RoundUp(size_t bytes) {
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

// Places the arrays behind `workspace`; returns where they end. The edits' originals come last: only they depend on
// more than rows and vocabulary.
size_t Place(Work& work, int rows, int edits) {
  char* const begin = static_cast<char*>(work.args.workspace);
  size_t at = 0;
  const auto take = [&](auto*& array, size_t count) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(begin + at);
    at += RoundUp(count * sizeof(*array));
  };
  take(work.states, size_t(rows));
  take(work.sums, size_t(rows) * size_t(work.chunks));
  take(work.bids, size_t(rows) * size_t(work.chunks));
  take(work.masses, size_t(rows) * kWeightClasses);
  take(work.originals, size_t(edits));
  return at;
}

Work WorkOf(const SampleArgs& args) {
  Work work{};
  work.args = args;
  work.blocks = NumLogitBlocks(args.vocab);
  work.chunks = (args.vocab + kSampleChunk - 1) / kSampleChunk;
  work.mass_scale = MassScale(args.vocab);
  return work;
}

}  // namespace

size_t SampleWorkspace(int rows, int vocab, int edits) {
  Work work = WorkOf({.vocab = vocab});
  return Place(work, rows, edits);
}

cudaError_t Sample(const SampleArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.rows > 65535 || args.vocab <= 0 || args.vocab > kMostSampleVocab)
    return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  Work work = WorkOf(args);
  Place(work, args.rows, 0);
  const dim3 chunks(unsigned(work.chunks), unsigned(args.rows));
  SumKernel<<<chunks, kChunkThreads, 0, stream>>>(work);
  EditKernel<<<unsigned(args.rows), kSelectThreads, 0, stream>>>(work);
  MassKernel<<<chunks, kChunkThreads, 0, stream>>>(work);
  CutKernel<<<unsigned(args.rows), kSelectThreads, 0, stream>>>(work);
  RaceKernel<<<chunks, kChunkThreads, 0, stream>>>(work);
  ResultKernel<<<unsigned(args.rows), 32, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
