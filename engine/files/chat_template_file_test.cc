#include "engine/files/chat_template_file.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

std::string Write(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/chat_template_file_test";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ChatTemplateFile, JinjaIsTakenAsItIs) {
  for (const std::string text :
       {"{{ bos_token }}\n", "{% if x %}{% endif %}", "{#- a #}", "plain", "\n{%- set a = 1 %}"}) {
    const absl::StatusOr<ChatTemplateFile> file = ReadChatTemplateFile(Write(text));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->jinja, text);
    EXPECT_EQ(file->tool_use_jinja, "");
  }
}

TEST(ChatTemplateFile, ConfigWithOneTemplateOrNamedOnes) {
  absl::StatusOr<ChatTemplateFile> file = ReadChatTemplateFile(Write(R"({"eos_token": "e", "chat_template": "A\n"})"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->jinja, "A\n");
  file = ReadChatTemplateFile(Write(
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"},
                            {"name": "default", "template": "D"}]})"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->jinja, "D");
  EXPECT_EQ(file->tool_use_jinja, "T");
}

TEST(ChatTemplateFile, ErrorsNameTheFile) {
  const struct {
    std::string text, error;
  } kCases[] = {
      {"", "is empty"},
      {" \n", "is empty"},
      {"{\"a\": ", "neither Jinja nor a JSON object"},
      {"{\"a\": 1}", "has no \"chat_template\""},
      {"{\"chat_template\": 1}", "neither a string nor a list"},
      {"{\"chat_template\": [{\"name\": \"x\"}]}", "has no \"name\" or no \"template\""},
      {R"({"chat_template": [{"name": "x", "template": ""}, {"name": "y", "template": ""}]})", "named \"default\""},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<ChatTemplateFile> file = ReadChatTemplateFile(Write(c.text));
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(c.error));
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("chat_template_file_test: "));
  }
  EXPECT_EQ(ReadChatTemplateFile("/nowhere/x").status().code(), absl::StatusCode::kNotFound);
}

TEST(ChatTemplateFile, AFolderIsNoFile) {
  EXPECT_FALSE(ReadChatTemplateFile(::testing::TempDir()).ok());
}

}  // namespace
}  // namespace sluice::engine
