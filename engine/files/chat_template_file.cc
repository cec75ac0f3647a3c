#include "engine/files/chat_template_file.h"

#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "engine/files/concat.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;  // a tokenizer_config.json lists all added tokens

absl::Status Invalid(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(Concat(path, ": ", what));
}

bool LooksLikeConfig(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' && text.compare(first, 2, "{{") != 0 &&
         text.compare(first, 2, "{%") != 0 && text.compare(first, 2, "{#") != 0;
}

absl::StatusOr<ChatTemplateFile> FromConfig(const std::string& path, const std::string& text) {
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return Invalid(path, "is neither Jinja nor a JSON object");
  const auto found = config.find("chat_template");
  if (found == config.end()) return Invalid(path, "has no \"chat_template\"");
  if (found->is_string()) return ChatTemplateFile{found->get<std::string>(), ""};
  if (!found->is_array()) return Invalid(path, "\"chat_template\" is neither a string nor a list");
  ChatTemplateFile file;
  bool has_default = false;
  for (const nlohmann::json& entry : *found) {
    const bool is_named = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                          entry.contains("template") && entry["template"].is_string();
    if (!is_named) return Invalid(path, "an entry of \"chat_template\" has no \"name\" or no \"template\"");
    const std::string name = entry["name"].get<std::string>();
    if (name == "default" || found->size() == 1) {
      file.jinja = entry["template"].get<std::string>();
      has_default = true;
    } else if (name == "tool_use") {
      file.tool_use_jinja = entry["template"].get<std::string>();
    }
  }
  if (!has_default) return Invalid(path, "\"chat_template\" has no template named \"default\"");
  return file;
}

}  // namespace

absl::StatusOr<ChatTemplateFile> ReadChatTemplateFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(Concat(path, ": cannot be read"));
  std::string text;
  for (char c; text.size() <= kMaxBytes && file.get(c);) text += c;
  if (file.bad() || (!file.eof() && text.size() <= kMaxBytes))
    return absl::NotFoundError(Concat(path, ": cannot be read"));
  if (text.size() > kMaxBytes) return Invalid(path, "is longer than 64 MiB");
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Invalid(path, "is empty");
  if (LooksLikeConfig(text)) return FromConfig(path, text);
  return ChatTemplateFile{std::move(text), ""};
}

}  // namespace sluice::engine
