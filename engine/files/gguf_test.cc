#include "engine/files/gguf.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/files/testing/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/dequant.h"

namespace sluice::engine {
namespace {

using kernels::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A value as AddRaw takes it.
template <typename... T>
std::string Raw(T... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return out;
}

GgufWriter Good() {
  GgufWriter w;
  w.AddString("general.name", "small");
  w.AddU32("answer", 42);
  w.AddF32("half", 0.5f);
  w.AddBool("yes", true);
  w.AddStrings("words", {"a", "", "ccc"});
  w.AddI32s("numbers", {1, -2, 3});
  std::string floats = Raw(1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f);
  w.AddTensor({"matrix", {3, 2}, GgufTypeId(DType::kF32), floats});
  w.AddTensor({"quantised", {32, 2, 3}, GgufTypeId(DType::kQ8_0), std::string(34 * 6, '\x11')});
  return w;
}

TEST(GgufTest, ReadsWhatWasWritten) {
  const std::string bytes = Good().Serialize();
  const absl::StatusOr<Gguf> file = Gguf::Parse(Bytes(bytes), "small.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->GetString("general.name"), "small");
  EXPECT_EQ(*file->GetInt("answer"), 42);
  EXPECT_EQ(*file->GetFloat("half"), 0.5);
  EXPECT_EQ(*file->GetBool("yes"), true);
  EXPECT_THAT(*file->GetStrings("words"), testing::ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*file->GetInts("numbers"), testing::ElementsAre(1, -2, 3));
  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor* matrix = file->FindTensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->data.rows, 2);
  EXPECT_EQ(matrix->data.cols, 3);
  float last = 0;
  std::memcpy(&last, static_cast<const char*>(matrix->data.data) + 20, sizeof(last));
  EXPECT_EQ(last, 6.0f);
  const GgufTensor* quantised = file->FindTensor("quantised");
  ASSERT_NE(quantised, nullptr);
  EXPECT_EQ(quantised->data.type, DType::kQ8_0);
  EXPECT_EQ(quantised->data.rows, 6);
  EXPECT_EQ(quantised->bytes, size_t{34 * 6});
  EXPECT_EQ(file->FindTensor("none"), nullptr);
}

TEST(GgufTest, MissingAndWrongTypesAreDifferentErrors) {
  const std::string bytes = Good().Serialize();
  const absl::StatusOr<Gguf> file = Gguf::Parse(Bytes(bytes), "small.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(absl::IsNotFound(file->GetInt("nothing").status()));
  EXPECT_EQ(file->GetInt("nothing").status().message(), "small.gguf: key \"nothing\" is missing");
  EXPECT_EQ(file->GetInt("half").status().message(),
            "small.gguf: key \"half\" should be an integer within 63 bits but is float32");
  EXPECT_EQ(file->GetFloat("answer").status().message(), "small.gguf: key \"answer\" should be a float but is uint32");
  EXPECT_EQ(file->GetBool("answer").status().message(), "small.gguf: key \"answer\" should be a bool but is uint32");
  EXPECT_EQ(file->GetString("words").status().message(),
            "small.gguf: key \"words\" should be a string but is an array of string");
  EXPECT_EQ(file->GetStrings("numbers").status().message(),
            "small.gguf: key \"numbers\" should be an array of strings but is an array of int32");
  EXPECT_EQ(file->GetInts("answer").status().message(),
            "small.gguf: key \"answer\" should be an array of integers but is uint32");
  EXPECT_EQ(file->GetInt("answer", 43, 99).status().message(), "small.gguf: key \"answer\" is 42, outside 43 to 99");
  EXPECT_TRUE(absl::IsInvalidArgument(file->GetInt("half").status()));
}

TEST(GgufTest, IntegersOfEveryWidth) {
  GgufWriter w = Good();
  w.AddInt("u8", GgufType::kUint8, 200);
  w.AddInt("i8", GgufType::kInt8, -100);
  w.AddInt("u16", GgufType::kUint16, 60000);
  w.AddInt("i16", GgufType::kInt16, -30000);
  w.AddInt("i32", GgufType::kInt32, -2000000000);
  w.AddInt("u64", GgufType::kUint64, int64_t{1} << 62);
  w.AddInt("i64", GgufType::kInt64, -(int64_t{1} << 62));
  w.AddInt("beyond", GgufType::kUint64, -1);
  w.AddRaw("wide", uint32_t(GgufType::kFloat64), Raw(0.25));
  w.AddF32("infinite", std::numeric_limits<float>::infinity());
  const std::string bytes = w.Serialize();
  const absl::StatusOr<Gguf> file = Gguf::Parse(Bytes(bytes), "f");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->GetInt("u8"), 200);
  EXPECT_EQ(*file->GetInt("i8"), -100);
  EXPECT_EQ(*file->GetInt("u16"), 60000);
  EXPECT_EQ(*file->GetInt("i16"), -30000);
  EXPECT_EQ(*file->GetInt("i32"), -2000000000);
  EXPECT_EQ(*file->GetInt("u64"), int64_t{1} << 62);
  EXPECT_EQ(*file->GetInt("i64"), -(int64_t{1} << 62));
  EXPECT_FALSE(file->GetInt("beyond").ok());
  EXPECT_EQ(*file->GetFloat("wide"), 0.25);
  EXPECT_FALSE(file->GetFloat("infinite").ok());
}

TEST(GgufTest, OtherAlignment) {
  GgufWriter w = Good();
  w.AddU32("general.alignment", 256);
  w.alignment = 256;
  const std::string bytes = w.Serialize();
  const absl::StatusOr<Gguf> file = Gguf::Parse(Bytes(bytes), "f");
  ASSERT_TRUE(file.ok()) << file.status();
  float first = 0;
  std::memcpy(&first, file->FindTensor("matrix")->data.data, sizeof(first));
  EXPECT_EQ(first, 1.0f);
}

TEST(GgufTest, NestedArraysUpToTheLimit) {
  for (int depth : {1, Gguf::kMaxArrayDepth, Gguf::kMaxArrayDepth + 1}) {
    std::string value = Raw(uint32_t(GgufType::kUint8), uint64_t{1}, uint8_t{7});
    for (int i = 1; i < depth; ++i) value = Raw(uint32_t(GgufType::kArray), uint64_t{1}) + value;
    GgufWriter w = Good();
    w.AddRaw("deep", uint32_t(GgufType::kArray), value);
    const std::string bytes = w.Serialize();
    EXPECT_EQ(Gguf::Parse(Bytes(bytes), "f").ok(), depth <= Gguf::kMaxArrayDepth) << depth;
  }
}

struct Refusal {
  const char* what;
  absl::StatusCode code;
  const char* message;  // part of it
  std::function<void(GgufWriter&)> break_it;
};

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument, kUnknown = absl::StatusCode::kUnimplemented;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

const std::vector<Refusal>& Refusals() {
  static const std::vector<Refusal> refusals = {
      {"old version", kUnknown, "GGUF version 2, only version 3", [](auto& w) { w.version = 2; }},
      {"version to come", kUnknown, "GGUF version 4", [](auto& w) { w.version = 4; }},
      {"big-endian", kUnknown, "big-endian", [](auto& w) { w.version = 0x03000000; }},
      {"repeated key", kInvalid, "key \"numbers\" appears twice", [](auto& w) { w.repeat_last_key = true; }},
      {"empty key", kInvalid, "a name of 0 bytes", [](auto& w) { w.AddU32("", 1); }},
      {"long key", kInvalid, "a name of 65536 bytes", [](auto& w) { w.AddU32(std::string(65536, 'k'), 1); }},
      {"value type", kInvalid, "key \"odd\" has the unknown value type 13", [](auto& w) { w.AddRaw("odd", 13, ""); }},
      {"element type", kInvalid, "key \"odd\" has the unknown element type 99",
       [](auto& w) { w.AddRaw("odd", 9, Raw(uint32_t{99}, uint64_t{0})); }},
      {"nested element type", kInvalid, "key \"odd\" has the unknown element type 99",
       [](auto& w) { w.AddRaw("odd", 9, Raw(uint32_t{9}, uint64_t{1}, uint32_t{99}, uint64_t{0})); }},
      {"string beyond the end", kInvalid, "ends inside key \"odd\"",
       [](auto& w) { w.AddRaw("odd", 8, Raw(uint64_t{1} << 40)); }},
      {"string of 2^64-1", kInvalid, "ends inside key \"odd\"", [](auto& w) { w.AddRaw("odd", 8, Raw(~uint64_t{0})); }},
      {"array beyond the end", kInvalid, "ends inside key \"odd\"",
       [](auto& w) { w.AddRaw("odd", 9, Raw(uint32_t{4}, uint64_t{1} << 40)); }},
      {"array whose size overflows", kInvalid, "ends inside key \"odd\"",
       [](auto& w) { w.AddRaw("odd", 9, Raw(uint32_t{10}, (uint64_t{1} << 61) + 1)); }},
      {"strings beyond the end", kInvalid, "ends inside key \"odd\"",
       [](auto& w) { w.AddRaw("odd", 9, Raw(uint32_t{8}, ~uint64_t{0})); }},
      {"control bytes in a key", kInvalid, "\"a\\nb\" has the unknown value type",
       [](auto& w) { w.AddRaw("a\nb", 77, ""); }},
      {"alignment 0", kInvalid, "\"general.alignment\" is 0", [](auto& w) { w.AddU32("general.alignment", 0); }},
      {"alignment 48", kInvalid, "not a power of two", [](auto& w) { w.AddU32("general.alignment", 48); }},
      {"alignment 4", kInvalid, "outside 8 to 1048576", [](auto& w) { w.AddU32("general.alignment", 4); }},
      {"alignment 2^31", kInvalid, "outside", [](auto& w) { w.AddU32("general.alignment", 1u << 31); }},
      {"alignment text", kInvalid, "should be an integer", [](auto& w) { w.AddString("general.alignment", "32"); }},
      {"repeated tensor", kInvalid, "tensor \"quantised\" appears twice", [](auto& w) { w.repeat_last_tensor = true; }},
      {"tensor without a name", kInvalid, "tensor 3 of 3 has a name of 0",
       [](auto& w) {
         w.AddTensor({"", {1}, 0, "1234"});
       }},
      {"no dimension", kInvalid, "tensor \"matrix\" has 0 dim", [](auto& w) { w.FindTensor("matrix")->dims = {}; }},
      {"five dimensions", kInvalid, "has 5 dimensions",
       [](auto& w) {
         w.FindTensor("matrix")->dims = {3, 2, 1, 1, 1};
       }},
      {"a zero", kInvalid, "has dimension 2 of 0",
       [](auto& w) {
         w.FindTensor("matrix")->dims = {3, 0};
       }},
      {"2^63", kInvalid, "has dimension 1 of 9223372036854775808",
       [](auto& w) { w.FindTensor("matrix")->dims = {uint64_t{1} << 63}; }},
      {"product overflow", kInvalid, "larger than any memory",
       [](auto& w) {
         w.FindTensor("matrix")->dims = {3, 1u << 31, 1u << 31, 1u << 31};
       }},
      {"product overflow in the rows", kInvalid, "larger than any memory",
       [](auto& w) {
         w.FindTensor("matrix")->dims = {1u << 31, 1u << 31, 4};
       }},
      {"bytes overflow", kInvalid, "larger than any memory",
       [](auto& w) {
         w.FindTensor("matrix")->dims = {uint64_t{1} << 62, 1};
       }},
      {"part of a block", kInvalid, "rows of 33 elements, not a multiple of the 32 in a block of Q8_0",
       [](auto& w) {
         w.FindTensor("quantised")->dims = {33, 2, 3};
       }},
      {"known foreign type", kUnknown, "tensor \"matrix\" is stored as type 20 (IQ4_NL), which is not supported",
       [](auto& w) { w.FindTensor("matrix")->type = 20; }},
      {"unknown type", kUnknown, "stored as type 1000, which", [](auto& w) { w.FindTensor("matrix")->type = 1000; }},
      {"removed type", kUnknown, "stored as type 4, which", [](auto& w) { w.FindTensor("matrix")->type = 4; }},
      {"unaligned", kInvalid, "tensor \"quantised\" starts at 36, which is not aligned to 32",
       [](auto& w) { w.FindTensor("quantised")->offset = 36; }},
      {"offset beyond the end", kInvalid, "tensor \"quantised\" (204 bytes) lies beyond the end",
       [](auto& w) { w.FindTensor("quantised")->offset = 1 << 20; }},
      {"offset that wraps", kInvalid, "lies beyond the end",
       [](auto& w) { w.FindTensor("quantised")->offset = kHuge - 31; }},
      {"tensor beyond the end", kInvalid, "lies beyond the end",
       [](auto& w) {
         w.FindTensor("quantised")->dims = {32, 2, 4};
       }},
      {"overlap", kInvalid, "overlap", [](auto& w) { w.FindTensor("quantised")->offset = 0; }},
  };
  return refusals;
}

TEST(GgufTest, RefusesInOneLineThatNamesTheThing) {
  for (const Refusal& refusal : Refusals()) {
    GgufWriter w = Good();
    refusal.break_it(w);
    const std::string bytes = w.Serialize();
    const absl::StatusOr<Gguf> file = Gguf::Parse(Bytes(bytes), "small.gguf");
    EXPECT_EQ(file.status().code(), refusal.code) << refusal.what << ": " << file.status();
    EXPECT_THAT(std::string(file.status().message()),
                AllOf(StartsWith("small.gguf: "), HasSubstr(refusal.message), Not(HasSubstr("\n"))))
        << refusal.what;
  }
}

// Counts that the file can't hold are refused before anything is reserved for them.
TEST(GgufTest, RefusesHugeCounts) {
  const std::string good = Good().Serialize();
  for (size_t at : {8, 16}) {
    for (uint64_t count : {uint64_t{1000}, uint64_t{1} << 20, uint64_t{1} << 40, ~uint64_t{0}}) {
      std::string bytes = good;
      std::memcpy(bytes.data() + at, &count, sizeof(count));
      const absl::Status status = Gguf::Parse(Bytes(bytes), "f").status();
      EXPECT_EQ(status.code(), kInvalid);
      EXPECT_THAT(std::string(status.message()), HasSubstr("more than fit"));
    }
  }
}

TEST(GgufTest, TruncatedAtEveryLength) {
  const std::string good = Good().Serialize();
  const absl::StatusOr<Gguf> whole = Gguf::Parse(Bytes(good), "f");
  ASSERT_TRUE(whole.ok());
  const GgufTensor& last = whole->tensors().back();
  const size_t end = size_t(static_cast<const char*>(last.data.data) - good.data()) + last.bytes;
  for (size_t length = 0; length < end; ++length) {
    // A copy of exactly that length, so that a sanitizer sees any read beyond it.
    const std::vector<uint8_t> cut(good.begin(), good.begin() + long(length));
    const absl::Status status = Gguf::Parse(cut, "f").status();
    ASSERT_EQ(status.code(), kInvalid) << length;
    ASSERT_THAT(std::string(status.message()), HasSubstr("download")) << length;
  }
  // Padding after the last tensor is not needed.
  EXPECT_TRUE(Gguf::Parse(Bytes(good).first(end), "f").ok());
}

// Whatever one byte becomes: an answer or a refusal, and reading all of an accepted file stays inside it.
TEST(GgufTest, EveryByteFlipped) {
  const std::string good = Good().Serialize();
  for (size_t at = 0; at < good.size(); ++at) {
    for (uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<uint8_t> bytes(good.begin(), good.end());
      bytes[at] = value;
      const absl::StatusOr<Gguf> file = Gguf::Parse(bytes, "f");
      if (!file.ok()) continue;
      for (const GgufTensor& tensor : file->tensors()) {
        std::vector<float> row(size_t(tensor.data.cols));
        kernels::DequantizeRow(tensor.data.type, tensor.data.data, tensor.data.cols, row.data());
      }
    }
  }
}

}  // namespace
}  // namespace sluice::engine
