// A string of a template that remembers where its bytes came from: from the template, which may name special tokens, or
// from the conversation, which may not.
//
// Promises: whatever is cut, joined or replaced keeps the origin of each byte. Bytes of the template that meet are one
// span, so that a name which a template puts together from parts counts as a whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/text_span.h"

namespace sluice::engine::jinja {

enum class Origin : bool { kConversation, kTemplate };

class Text {
 public:
  Text() = default;
  Text(std::string bytes, Origin origin);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Of the template; ascending, apart, not empty.
  const std::vector<TextSpan>& template_spans() const { return spans_; }
  Origin OriginAt(size_t at) const;
  // Of a text that is all of one origin; kConversation if it is mixed.
  Origin OriginOfAll() const;

  void Append(std::string_view bytes, Origin origin);
  void Append(const Text& text) { Append(text, 0, text.size()); }
  void Append(const Text& text, size_t begin, size_t end);
  Text Sub(size_t begin, size_t end) const;
  void Truncate(size_t size);

  std::string&& TakeBytes() && { return std::move(bytes_); }
  std::vector<TextSpan>&& TakeSpans() && { return std::move(spans_); }

 private:
  void AddSpan(size_t begin, size_t end);

  std::string bytes_;
  std::vector<TextSpan> spans_;
};

}  // namespace sluice::engine::jinja
