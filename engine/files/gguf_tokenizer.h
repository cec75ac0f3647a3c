// The vocabulary of a GGUF file (keys tokenizer.ggml.*).
#pragma once

#include "absl/status/statusor.h"
#include "engine/files/gguf.h"
#include "engine/files/tokenizer_data.h"

namespace sluice::engine {

// Promise: types is parallel to tokens, every id is within the vocabulary or -1, eog_ids is sorted without repetition,
// and there are no more tokens than `vocab`, the rows of the embedding table (files may pad the table).
absl::StatusOr<TokenizerData> ReadTokenizer(const Gguf& file, int vocab);

}  // namespace sluice::engine
