#include "engine/files/model_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/files/testing/tiny_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

GgufWriter Tiny(const TinyModelSpec& spec = {}) {
  absl::StatusOr<GgufWriter> writer = MakeTinyModel(spec);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return *std::move(writer);
}

// The bytes with the model in them.
struct Opened {
  std::string bytes;
  absl::StatusOr<std::unique_ptr<ModelFile>> model = nullptr;
};

std::unique_ptr<Opened> Open(const GgufWriter& writer) {
  auto opened = std::make_unique<Opened>();
  opened->bytes = writer.Serialize();
  opened->model =
      OpenModelBytes({reinterpret_cast<const uint8_t*>(opened->bytes.data()), opened->bytes.size()}, "tiny.gguf");
  return opened;
}

TEST(ModelFileTest, ReadsConfig) {
  const auto opened = Open(Tiny());
  ASSERT_TRUE(opened->model.ok()) << opened->model.status();
  const ModelConfig& c = (*opened->model)->config();
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.num_layers, 2);
  EXPECT_EQ(c.hidden, 288);
  EXPECT_EQ(c.num_heads, 9);
  EXPECT_EQ(c.num_kv_heads, 3);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.rotary_dim, 32);
  EXPECT_EQ(c.ffn, 768);
  EXPECT_EQ(c.context_length, 2048);
  EXPECT_EQ(c.vocab, int((*opened->model)->tokenizer().tokens.size()));
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.rms_eps, 1e-5f);
  EXPECT_EQ(c.rope_style, kernels::RopeStyle::kInterleaved);
  EXPECT_TRUE(c.rope_factors.empty());
  const kernels::HostTensor* down = (*opened->model)->Find("blk.1.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->rows, 288);
  EXPECT_EQ(down->cols, 768);
}

TEST(ModelFileTest, DefaultsOfWhatAFileMayLeaveOut) {
  TinyModelSpec spec;
  spec.kv_heads = spec.heads;
  spec.tied = true;
  GgufWriter w = Tiny(spec);
  w.RemoveKey("llama.rope.freq_base");
  w.RemoveKey("llama.rope.dimension_count");
  w.RemoveKey("llama.attention.head_count_kv");
  w.RemoveKey("tokenizer.ggml.token_type");
  w.RemoveKey("tokenizer.ggml.bos_token_id");
  w.RemoveKey("tokenizer.ggml.add_bos_token");
  w.RemoveKey("tokenizer.chat_template");
  w.RemoveKey("general.name");
  w.AddString("llama.rope.scaling.type", "none");
  const auto opened = Open(w);
  ASSERT_TRUE(opened->model.ok()) << opened->model.status();
  const ModelConfig& c = (*opened->model)->config();
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.rotary_dim, c.head_dim);
  EXPECT_EQ(c.num_kv_heads, c.num_heads);
  EXPECT_EQ((*opened->model)->Find("output.weight"), nullptr);
  const TokenizerData& t = (*opened->model)->tokenizer();
  EXPECT_EQ(t.bos_id, -1);
  EXPECT_EQ(t.types.size(), t.tokens.size());
  EXPECT_THAT(t.eog_ids, testing::ElementsAre(2));  // no types: the names alone end nothing
}

TEST(ModelFileTest, HeadsOfAnotherWidthThanTheEmbedding) {
  TinyModelSpec spec;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.hidden = 512;
  spec.rope_factors = true;
  const auto opened = Open(Tiny(spec));
  ASSERT_TRUE(opened->model.ok()) << opened->model.status();
  const ModelConfig& c = (*opened->model)->config();
  EXPECT_EQ(c.hidden, 512);
  EXPECT_EQ(c.head_dim, 64);
  ASSERT_EQ(c.rope_factors.size(), 32u);
  for (float factor : c.rope_factors) EXPECT_TRUE(factor >= 1 && factor < 2) << factor;
  EXPECT_EQ((*opened->model)->Find("blk.0.attn_q.weight")->rows, 256);
}

TEST(ModelFileTest, ReadsVocabulary) {
  GgufWriter w = Tiny();
  w.AddBool("tokenizer.ggml.add_bos_token", true);
  const auto opened = Open(w);
  ASSERT_TRUE(opened->model.ok()) << opened->model.status();
  const TokenizerData& t = (*opened->model)->tokenizer();
  EXPECT_EQ(t.model, "gpt2");
  EXPECT_EQ(t.pre_tokenizer, "smollm");
  EXPECT_EQ(t.tokens[1], "<|im_start|>");
  EXPECT_EQ(t.tokens[3 + 'A'], "A");
  EXPECT_EQ(t.tokens[3 + ' '], "\u0120");
  EXPECT_EQ(t.tokens[3 + 0x7f], "\u0121");
  EXPECT_EQ(t.tokens[3 + 0xad], "\u0143");
  EXPECT_EQ(t.tokens[3 + 0xff], "\u00ff");
  EXPECT_EQ(t.types[0], TokenType::kControl);
  EXPECT_EQ(t.types[3], TokenType::kNormal);
  EXPECT_EQ(t.merges[0], "\u0120 t");
  EXPECT_EQ(t.bos_id, 1);
  EXPECT_EQ(t.eos_id, 2);
  EXPECT_THAT(t.eog_ids, testing::ElementsAre(0, 2));
  EXPECT_TRUE(t.add_bos);
  EXPECT_FALSE(t.add_eos);
  EXPECT_THAT(t.chat_template, HasSubstr("add_generation_prompt"));
}

struct Refusal {
  const char* what;
  absl::StatusCode code;
  const char* message;
  std::function<void(GgufWriter&)> break_it;
};

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument, kUnknown = absl::StatusCode::kUnimplemented;

const std::vector<Refusal>& Refusals() {
  static const std::vector<Refusal> refusals = {
      {"no architecture", kInvalid, "key \"general.architecture\" is missing",
       [](auto& w) { w.RemoveKey("general.architecture"); }},
      {"unknown architecture", kUnknown, "the architecture \"mamba\" is not supported; known: llama",
       [](auto& w) { w.AddString("general.architecture", "mamba"); }},
      {"missing key", kInvalid, "key \"llama.block_count\" is missing",
       [](auto& w) { w.RemoveKey("llama.block_count"); }},
      {"key of another type", kInvalid, "key \"llama.block_count\" should be an integer",
       [](auto& w) { w.AddF32("llama.block_count", 2); }},
      {"no layers", kInvalid, "key \"llama.block_count\" is 0, outside 1 to",
       [](auto& w) { w.AddU32("llama.block_count", 0); }},
      {"a billion layers", kInvalid, "key \"llama.block_count\" is 1000000000, outside",
       [](auto& w) { w.AddU32("llama.block_count", 1000000000); }},
      {"no heads", kInvalid, "head_count\" is 0", [](auto& w) { w.AddU32("llama.attention.head_count", 0); }},
      {"uneven groups", kInvalid, "has 9 attention heads, which 2 key-value heads don't divide",
       [](auto& w) { w.AddU32("llama.attention.head_count_kv", 2); }},
      {"uneven heads", kInvalid, "has an embedding of 288, which 10 heads don't divide",
       [](auto& w) {
         w.AddU32("llama.attention.head_count", 10);
         w.AddU32("llama.attention.head_count_kv", 5);
       }},
      {"odd head", kInvalid, "has heads of 33", [](auto& w) { w.AddU32("llama.attention.key_length", 33); }},
      {"wide head", kInvalid, "outside 1 to 1024", [](auto& w) { w.AddU32("llama.attention.key_length", 1u << 30); }},
      {"other values", kUnknown, "values of another length",
       [](auto& w) { w.AddU32("llama.attention.value_length", 64); }},
      {"rotates too much", kInvalid, "rotates 64 of the 32",
       [](auto& w) { w.AddU32("llama.rope.dimension_count", 64); }},
      {"RoPE base", kInvalid, "freq_base\" is -1, not positive", [](auto& w) { w.AddF32("llama.rope.freq_base", -1); }},
      {"RoPE scaling", kUnknown, "scales RoPE by \"yarn\"",
       [](auto& w) { w.AddString("llama.rope.scaling.type", "yarn"); }},
      {"epsilon", kInvalid, "not finite",
       [](auto& w) { w.AddF32("llama.attention.layer_norm_rms_epsilon", std::numeric_limits<float>::quiet_NaN()); }},
      {"no epsilon", kInvalid, "rms_epsilon\" is missing",
       [](auto& w) { w.RemoveKey("llama.attention.layer_norm_rms_epsilon"); }},
      {"experts", kUnknown, "mixture of experts", [](auto& w) { w.AddU32("llama.expert_count", 8); }},
      {"missing tensor", kInvalid, "tensor \"blk.1.ffn_up.weight\" is missing",
       [](auto& w) { w.RemoveTensor("blk.1.ffn_up.weight"); }},
      {"missing embedding", kInvalid, "tensor \"token_embd.weight\" is missing",
       [](auto& w) { w.RemoveTensor("token_embd.weight"); }},
      {"unknown tensor", kUnknown, "tensor \"blk.0.attn_output.bias\" is not known to the architecture llama",
       [](auto& w) {
         w.AddTensor({"blk.0.attn_output.bias", {1}, 0, "1234"});
       }},
      {"wrong shape", kInvalid,
       "tensor \"output_norm.weight\" has the shape [1], the model's hyperparameters ask for [288]",
       [](auto& w) {
         w.AddTensor({"output_norm.weight", {1}, 0, "1234"});
       }},
      {"wrong width", kInvalid, "the model's hyperparameters ask for",
       [](auto& w) { w.AddU32("llama.feed_forward_length", 512); }},
      {"rope factor", kInvalid, "\"rope_freqs.weight\" holds 0",
       [](auto& w) {
         w.AddTensor({"rope_freqs.weight", {16}, 0, std::string(64, '\0')});
       }},
      {"rope factors", kInvalid, "\"rope_freqs.weight\" has the shape [8]",
       [](auto& w) {
         w.AddTensor({"rope_freqs.weight", {8}, 0, std::string(32, '\0')});
       }},
      {"no tokenizer", kInvalid, "key \"tokenizer.ggml.model\" is missing",
       [](auto& w) { w.RemoveKey("tokenizer.ggml.model"); }},
      {"no tokens", kInvalid, "\"tokenizer.ggml.tokens\" has 0 tokens",
       [](auto& w) { w.AddStrings("tokenizer.ggml.tokens", {}); }},
      {"too many tokens", kInvalid, "\"tokenizer.ggml.tokens\" has 1000 tokens, the embedding table 291",
       [](auto& w) { w.AddStrings("tokenizer.ggml.tokens", std::vector<std::string>(1000, "x")); }},
      {"types of other tokens", kInvalid, "token_type\" has 2 entries for 291 tokens",
       [](auto& w) {
         w.AddI32s("tokenizer.ggml.token_type", {1, 1});
       }},
      {"unknown token type", kInvalid, "gives token 0 the unknown type 9",
       [](auto& w) { w.AddI32s("tokenizer.ggml.token_type", std::vector<int32_t>(291, 9)); }},
      {"eos out of range", kInvalid, "eos_token_id\" is 291, outside 0 to 290",
       [](auto& w) { w.AddU32("tokenizer.ggml.eos_token_id", 291); }},
      {"eos text", kInvalid, "eos_token_id\" should be",
       [](auto& w) { w.AddString("tokenizer.ggml.eos_token_id", "2"); }},
  };
  return refusals;
}

TEST(ModelFileTest, RefusesInOneLineThatNamesTheThing) {
  const GgufWriter good = Tiny();
  for (const Refusal& refusal : Refusals()) {
    GgufWriter w = good;
    refusal.break_it(w);
    const absl::Status status = Open(w)->model.status();
    EXPECT_EQ(status.code(), refusal.code) << refusal.what << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("tiny.gguf: "), HasSubstr(refusal.message), Not(HasSubstr("\n"))))
        << refusal.what;
  }
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice_files_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  std::string path_;
};

TEST(ModelFileTest, WhatIsNoModelGetsItsOwnLine) {
  const TemporaryFolder folder;
  const std::string good = Tiny().Serialize();
  const std::string safetensors = std::string("\x40\0\0\0\0\0\0\0", 8) + "{\"a\":{}}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {folder.path() + "/none.gguf", "no such file; check the path"},
      {folder.path(), "is a directory, not a model file; name the .gguf file in it"},
      {"/dev/null", "is not a regular file"},
      {folder.Write("empty", ""), "is empty; download"},
      {folder.Write("zip", "PK\x03\x04rest"), "is a zip archive"},
      {folder.Write("gzip", "\x1f\x8brest"), "is a gzip archive"},
      {folder.Write("safetensors", safetensors), "is a safetensors file"},
      {folder.Write("text", "Hello, this is a text.\n"), "is a text file"},
      {folder.Write("pointer", "version https://git-lfs.github.com/spec/v1\n"), "is a Git LFS pointer"},
      {folder.Write("binary", std::string("\0\1\2\3\4\5\6\7\x08\x09", 10)), "is not a GGUF file"},
      {folder.Write("beginning", good.substr(0, 3)), "ends after 3 bytes"},
      {folder.Write("header", good.substr(0, 4000)), "the file ends inside"},
      {folder.Write("data", good.substr(0, good.size() / 2)), "lies beyond the end of the file"},
  };
  for (const auto& [path, message] : cases) {
    const absl::Status status = OpenModel(path).status();
    EXPECT_EQ(status.code(), message.starts_with("no such") ? absl::StatusCode::kNotFound : kInvalid) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith(path + ": "), HasSubstr(message), Not(HasSubstr("\n"))));
  }
}

TEST(ModelFileTest, OpensAWrittenFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/tiny.gguf";
  ASSERT_TRUE(WriteTinyModel(path, {}).ok());
  const auto from_file = OpenModel(path);
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  const auto from_bytes = Open(Tiny());
  EXPECT_EQ((*from_file)->ContentHash(), (*from_bytes->model)->ContentHash());
  EXPECT_EQ((*from_file)->ContentHash().size(), 64u);
}

TEST(ModelFileTest, HashIsOfTheTensorsAlone) {
  const std::string hash = (*Open(Tiny())->model)->ContentHash();
  GgufWriter renamed = Tiny();
  renamed.AddString("general.name", "another name");
  GgufWriter::Tensor moved = *renamed.FindTensor("token_embd.weight");
  renamed.RemoveTensor(moved.name);
  renamed.AddTensor(moved);
  EXPECT_EQ((*Open(renamed)->model)->ContentHash(), hash);
  GgufWriter changed = Tiny();
  changed.FindTensor("output_norm.weight")->data[5] ^= 1;
  EXPECT_NE((*Open(changed)->model)->ContentHash(), hash);
  TinyModelSpec other;
  other.seed = 2;
  EXPECT_NE((*Open(Tiny(other))->model)->ContentHash(), hash);
}

// The hash of a fixed model, computed by an independent program (Python's hashlib over the tensors as gguf-py reads
// them): the definition in content_hash.h and the generator's bytes are the same on every machine.
TEST(ModelFileTest, HashOfTheDefaultTinyModel) {
  EXPECT_EQ((*Open(Tiny())->model)->ContentHash(), "5183901fbf92b8ddcce2457ef202c9c05ac7af4156be050b20c46b69cd22d817");
}

TEST(ModelFileTest, EveryTypeHasItsTurn) {
  TinyModelSpec spec;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  for (kernels::DType type : spec.types) {
    TinyModelSpec one = spec;
    one.types = {type};
    const auto opened = Open(Tiny(one));
    ASSERT_TRUE(opened->model.ok()) << opened->model.status();
    EXPECT_EQ((*opened->model)->Find("blk.0.attn_q.weight")->type, type);
  }
  EXPECT_FALSE(MakeTinyModel({.heads = 3, .kv_heads = 1, .types = {kernels::DType::kQ4_K}}).ok());
}

TEST(ModelFileTest, RealModel) {
  const char* path = std::getenv("SLUICE_TEST_MODEL");
  if (path == nullptr || *path == '\0') GTEST_SKIP() << "SLUICE_TEST_MODEL names no model";
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_GT((*model)->config().num_layers, 0);
  EXPECT_FALSE((*model)->tokenizer().eog_ids.empty());
  EXPECT_EQ((*model)->ContentHash().size(), 64u);
}

}  // namespace
}  // namespace sluice::engine
