// The prompts of tests/golden/golden_smollm2.json on the real vocabulary. Skipped unless SLUICE_TEST_MODEL names the
// file.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/files/model_file.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

class GoldenPromptsTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const path = std::getenv("SLUICE_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "set SLUICE_TEST_MODEL to SmolLM2-135M-Instruct's GGUF file";
    const absl::StatusOr<std::unique_ptr<ModelFile>> model = OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create((*model)->tokenizer());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    std::ifstream file("tests/golden/golden_smollm2.json");
    ASSERT_TRUE(file.is_open()) << "run in the repository's root";
    golden_ = nlohmann::json::parse(file);
    ASSERT_EQ(golden_["prompts"].size(), 14u);
  }

  std::string Decode(const std::vector<int32_t>& ids) const {
    Detokenizer detokenizer(tokenizer_.get(), /*skip_control=*/false);
    std::string text;
    for (const int32_t id : ids) text += detokenizer.Add(id);
    return text + detokenizer.Flush();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json golden_;
};

TEST_F(GoldenPromptsTest, PromptsEncodeToTheReferenceIds) {
  for (const nlohmann::json& prompt : golden_["prompts"]) {
    const auto text = prompt["text"].get<std::string>();
    const auto ids = prompt["ids_hf"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->Encode(text, SpecialText::kParse), ids) << prompt["name"];
    EXPECT_EQ(Decode(ids), text) << prompt["name"];
  }
}

TEST_F(GoldenPromptsTest, OutputsDecodeToTheReferenceText) {
  for (const nlohmann::json& prompt : golden_["prompts"]) {
    EXPECT_EQ(Decode(prompt["output_ids"].get<std::vector<int32_t>>()), prompt["output_text"].get<std::string>())
        << prompt["name"];
  }
}

}  // namespace
}  // namespace sluice::engine
