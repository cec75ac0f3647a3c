// A chat template from a file: Jinja, or the tokenizer_config.json of a model on Hugging Face, whose `chat_template` is
// a string or a list of named ones.
//
// Promises: NOT_FOUND or INVALID_ARGUMENT that names the file; whether the Jinja parses is for engine/text to say.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice::engine {

struct ChatTemplateFile {
  std::string jinja;           // the one named "default", or the only one
  std::string tool_use_jinja;  // the one named "tool_use"; empty: none
};

absl::StatusOr<ChatTemplateFile> ReadChatTemplateFile(const std::string& path);

}  // namespace sluice::engine
