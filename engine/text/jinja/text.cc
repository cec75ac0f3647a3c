#include "engine/text/jinja/text.h"

#include <algorithm>
#include <utility>

namespace sluice::engine::jinja {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (origin == Origin::kTemplate) AddSpan(0, bytes_.size());
}

Origin Text::OriginAt(size_t at) const {
  const auto span =
      std::upper_bound(spans_.begin(), spans_.end(), at, [](size_t a, const TextSpan& s) { return a < s.end; });
  return span != spans_.end() && span->begin <= at ? Origin::kTemplate : Origin::kConversation;
}

Origin Text::OriginOfAll() const {
  const bool all = empty() || (spans_.size() == 1 && spans_[0] == TextSpan{0, size()});
  return all ? Origin::kTemplate : Origin::kConversation;
}

void Text::AddSpan(size_t begin, size_t end) {
  if (begin == end) return;
  if (!spans_.empty() && spans_.back().end == begin) {
    spans_.back().end = end;
  } else {
    spans_.push_back({begin, end});
  }
}

void Text::Append(std::string_view bytes, Origin origin) {
  const size_t begin = bytes_.size();
  bytes_ += bytes;
  if (origin == Origin::kTemplate) AddSpan(begin, bytes_.size());
}

void Text::Append(const Text& text, size_t begin, size_t end) {
  const size_t shift = bytes_.size();  // of byte 0 of `text`, less `begin`
  bytes_.append(text.bytes_, begin, end - begin);
  auto span = std::upper_bound(text.spans_.begin(), text.spans_.end(), begin,
                               [](size_t a, const TextSpan& s) { return a < s.end; });
  for (; span != text.spans_.end() && span->begin < end; ++span) {
    AddSpan(std::max(span->begin, begin) - begin + shift, std::min(span->end, end) - begin + shift);
  }
}

Text Text::Sub(size_t begin, size_t end) const {
  Text part;
  part.Append(*this, begin, end);
  return part;
}

void Text::Truncate(size_t size) {
  bytes_.resize(size);
  while (!spans_.empty() && spans_.back().begin >= size) spans_.pop_back();
  if (!spans_.empty()) spans_.back().end = std::min(spans_.back().end, size);
}

}  // namespace sluice::engine::jinja
