// Encodes strings with the vocabulary of a model file, for comparison with other tokenizers: reads one JSON string per
// line, writes {"ids": [...], "text": "..."} per line, where text is what the ids decode to, control tokens by name.
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "engine/files/model_file.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

int Dump(const std::string& path, SpecialText special) {
  const absl::StatusOr<std::unique_ptr<ModelFile>> model = OpenModel(path);
  if (!model.ok()) {
    std::cerr << model.status().message() << "\n";
    return 1;
  }
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create((*model)->tokenizer());
  if (!tokenizer.ok()) {
    std::cerr << path << ": " << tokenizer.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_string()) {
      std::cerr << "not a JSON string: " << line << "\n";
      return 1;
    }
    const std::vector<int32_t> ids = (*tokenizer)->Encode(json.get<std::string>(), special, /*add_special=*/false);
    Detokenizer detokenizer(tokenizer->get(), /*skip_control=*/false);
    std::string text;
    for (const int32_t id : ids) text += detokenizer.Add(id);
    text += detokenizer.Flush();
    std::cout << nlohmann::json{{"ids", ids}, {"text", text}}.dump() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Encodes JSON strings, one a line, with a model's tokenizer");
  std::string model;
  bool plain = false;
  app.add_option("model", model, "GGUF file")->required();
  app.add_flag("--plain", plain, "names of control tokens are text");
  CLI11_PARSE(app, argc, argv);
  return sluice::engine::Dump(model, plain ? sluice::engine::SpecialText::kPlain : sluice::engine::SpecialText::kParse);
}
