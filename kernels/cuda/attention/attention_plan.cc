#include "kernels/cuda/attention/attention_plan.h"

#include <algorithm>
#include <cstring>

#include "glog/logging.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kHeaderWords = sizeof(AttentionPlanHeader) / sizeof(int32_t);

constexpr int DivideUp(int a, int b) {
  return a / b + (a % b != 0);
}

// The first key that a row at `position` sees.
int FirstKey(int position, int window) {
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

int TokensOfSpanItem(int group) {
  return kSpanItemRows / ItemHeads(group);
}
int TokensOfPrefillItem(const AttentionShape& shape) {
  return PrefillItemRows(shape.head_dim) / ItemHeads(shape.group);
}

// Some consecutive rows of a sequence, and the spans that they see between them.
struct Rows {
  int row, tokens, position;
  int first_span, end_span;

  Rows(int first_row, int count, int first_position, int window)
      : row(first_row),
        tokens(count),
        position(first_position),
        first_span(FirstKey(position, window) / kAttentionSpan),
        end_span((position + tokens - 1) / kAttentionSpan + 1) {}
  int spans() const { return end_span - first_span; }
  int partials() const { return tokens * spans(); }
};

// Walks the sequences and gives each to one of two sinks: few rows to Split(seq, chunks), many to Whole(seq, rows).
class Division {
 public:
  Division(std::span<const int32_t> row_begin, std::span<const int32_t> context_len, const AttentionShape& shape,
           int max_partials)
      : row_begin_(row_begin), context_len_(context_len), shape_(shape), max_partials_(max_partials) {}

  template <typename Sink>
  void Run(Sink& sink) const {
    int partials = 0;
    for (int seq = 0; seq < int(context_len_.size()); ++seq) {
      const int row = row_begin_[size_t(seq)], tokens = row_begin_[size_t(seq) + 1] - row;
      if (tokens == 0) continue;
      const int position = context_len_[size_t(seq)] - tokens;
      CHECK_GE(position, 0) << "sequence " << seq << " has more rows than tokens";
      const int chunk = TokensOfSpanItem(shape_.group), chunks = DivideUp(tokens, chunk);
      const auto part = [&](int i) {
        return Rows(row + i * chunk, std::min(chunk, tokens - i * chunk), position + i * chunk, shape_.window);
      };
      int64_t needed = partials;
      for (int i = 0; i < chunks && chunks <= kMaxItemsASpan; ++i) needed += part(i).partials();
      if (chunks > kMaxItemsASpan || needed > max_partials_) {
        sink.Whole(seq, Rows(row, tokens, position, shape_.window));
        continue;
      }
      sink.Split(seq, chunks, part, partials);
      partials = int(needed);
    }
  }

 private:
  std::span<const int32_t> row_begin_, context_len_;
  AttentionShape shape_;
  int max_partials_;
};

struct Counter {
  AttentionShape shape;
  AttentionPlanHeader counts{};

  template <typename Part>
  void Split(int, int chunks, const Part& part, int) {
    for (int i = 0; i < chunks; ++i) {
      const Rows rows = part(i);
      counts.spans += rows.spans();
      counts.merges += rows.tokens;
      counts.partials += rows.partials();
    }
  }
  void Whole(int, const Rows& rows) { counts.prefills += DivideUp(rows.tokens, TokensOfPrefillItem(shape)); }
};

struct Writer {
  AttentionShape shape;
  SpanItem* spans;
  MergeItem* merges;
  PrefillItem* prefills;

  template <typename Part>
  void Split(int seq, int chunks, const Part& part, int partial) {
    // Items that read the same keys stand together.
    for (int span = part(0).first_span; span < part(chunks - 1).end_span; ++span) {
      int base = partial;
      for (int i = 0; i < chunks; ++i) {
        const Rows rows = part(i);
        if (span >= rows.first_span && span < rows.end_span) {
          *spans++ = {seq, rows.row, rows.tokens, rows.position, span, base + span - rows.first_span, rows.spans(), 0};
        }
        base += rows.partials();
      }
    }
    for (int i = 0; i < chunks; ++i) {
      const Rows rows = part(i);
      for (int t = 0; t < rows.tokens; ++t) {
        const Rows own(rows.row + t, 1, rows.position + t, shape.window);
        *merges++ = {own.row, partial + t * rows.spans() + own.first_span - rows.first_span, own.spans(), 0};
      }
      partial += rows.partials();
    }
  }
  void Whole(int seq, const Rows& rows) {
    const int chunk = TokensOfPrefillItem(shape);
    for (int t = 0; t < rows.tokens; t += chunk) {
      *prefills++ = {seq, rows.row + t, std::min(chunk, rows.tokens - t), rows.position + t};
    }
  }
};

// Longest first, so that the last ones to start are short.
void Sort(std::span<PrefillItem> items, int window) {
  const auto keys = [&](const PrefillItem& i) { return i.position + i.tokens - FirstKey(i.position, window); };
  std::sort(items.begin(), items.end(), [&](const PrefillItem& a, const PrefillItem& b) {
    return keys(a) != keys(b) ? keys(a) > keys(b) : a.row < b.row;
  });
}

}  // namespace

size_t AttentionCapacity::words() const {
  return kHeaderWords + (size_t(spans) * sizeof(SpanItem) + size_t(merges) * sizeof(MergeItem) +
                         size_t(prefills) * sizeof(PrefillItem)) /
                            sizeof(int32_t);
}

AttentionCapacity CapacityFor(int max_rows, int max_seqs, int max_context, const AttentionShape& shape) {
  const int chunk = TokensOfSpanItem(shape.group);
  int64_t spans = DivideUp(max_context, kAttentionSpan);
  // A chunk's keys, at the worst place.
  if (shape.window > 0) spans = std::min(spans, (int64_t(shape.window) + chunk - 2) / kAttentionSpan + 2);
  const int rows = int(std::min<int64_t>(max_rows, int64_t(max_seqs) * kMaxItemsASpan * chunk));
  AttentionCapacity capacity;
  capacity.merges = rows;
  capacity.partials = int(std::min<int64_t>(rows * spans, std::max(kMaxPartials, rows)));
  capacity.spans = capacity.partials;  // each has one at least
  capacity.prefills = max_rows / TokensOfPrefillItem(shape) + std::min(max_rows, max_seqs);
  return capacity;
}

size_t BuildAttentionPlan(std::span<const int32_t> row_begin, std::span<const int32_t> context_len,
                          const AttentionShape& shape, const AttentionCapacity& capacity, std::span<int32_t> plan) {
  CHECK_GE(plan.size(), capacity.words());
  const Division division(row_begin, context_len, shape, capacity.partials);
  Counter counter{shape};
  division.Run(counter);
  AttentionPlanHeader header = counter.counts;
  CHECK_LE(header.spans, capacity.spans);
  CHECK_LE(header.merges, capacity.merges);
  CHECK_LE(header.prefills, capacity.prefills);
  header.span_at = kHeaderWords;
  header.merge_at = header.span_at + header.spans * int(sizeof(SpanItem) / sizeof(int32_t));
  header.prefill_at = header.merge_at + header.merges * int(sizeof(MergeItem) / sizeof(int32_t));
  header.words = header.prefill_at + header.prefills * int(sizeof(PrefillItem) / sizeof(int32_t));
  std::memcpy(plan.data(), &header, sizeof(header));
  Writer writer{shape, reinterpret_cast<SpanItem*>(plan.data() + header.span_at),
                reinterpret_cast<MergeItem*>(plan.data() + header.merge_at),
                reinterpret_cast<PrefillItem*>(plan.data() + header.prefill_at)};
  const std::span<PrefillItem> prefills(writer.prefills, size_t(header.prefills));
  division.Run(writer);
  Sort(prefills, shape.window);
  return size_t(header.words);
}

}  // namespace sluice::kernels::cuda
