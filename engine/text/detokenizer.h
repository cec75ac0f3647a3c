// Turns a growing list of token ids into text, piece by piece, without ever emitting half a character.
//
// Promises: the pieces concatenate to the text of the whole list; each piece is valid UTF-8. Bytes that can't begin or
// continue a character become U+FFFD, as Unicode asks (one per maximal subpart). What is left incomplete at the end is
// emitted by Flush() as U+FFFD.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"

namespace sluice::engine {

class Detokenizer {
 public:
  // skip_control: control tokens yield no text (an answer); otherwise they yield their name.
  explicit Detokenizer(const Tokenizer* tokenizer, bool skip_control = true);

  std::string Add(int32_t id);
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_control_;
  std::string pending_;  // at most 3 bytes: the beginning of a character
};

}  // namespace sluice::engine
