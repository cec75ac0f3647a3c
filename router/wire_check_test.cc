#include "router/wire_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "proto/serving.pb.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace pb = ::sluice::v1;

absl::Status Check(const std::string& bytes) {
  return CheckWire(*pb::GenerateRequest::descriptor(), bytes);
}

std::string Why(const std::string& bytes) {
  const absl::Status status = Check(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string Key(int field, int wire_type) {
  return std::string(1, char(field << 3 | wire_type));
}

// A request with one nested field, the bytes of which are given.
std::string InSampling(const std::string& bytes) {
  return Key(5, 2) + char(bytes.size()) + bytes;
}

TEST(WireCheckTest, TakesWhatProtobufWrites) {
  pb::GenerateRequest request;
  EXPECT_TRUE(Check("").ok());
  request.set_text("Grüße");
  request.mutable_sampling()->set_temperature(0.5f);
  request.mutable_sampling()->add_stop("\n");
  request.mutable_sampling()->add_stop_token_ids(7);
  (*request.mutable_sampling()->mutable_logit_bias())[5] = 1.5f;
  request.set_priority(-3);
  EXPECT_TRUE(Check(request.SerializeAsString()).ok());
  request.mutable_token_ids()->add_ids(1);
  EXPECT_TRUE(Check(request.SerializeAsString()).ok());
}

TEST(WireCheckTest, TakesPackedAndUnpackedNumbers) {
  EXPECT_TRUE(Check(InSampling(Key(15, 0) + "\x05")).ok());
  EXPECT_TRUE(Check(InSampling(Key(15, 2) + "\x02\x05\x06")).ok());
  EXPECT_THAT(Why(InSampling(Key(15, 5) + "abcd")),
              StartsWith("sampling.stop_token_ids: has the wrong wire type; it must be repeated int32"));
}

TEST(WireCheckTest, NamesThePackedFieldThatIsCutShort) {
  EXPECT_THAT(Why(InSampling(Key(15, 2) + "\x02\x05\x86")), StartsWith("sampling.stop_token_ids: is cut short"));
}

TEST(WireCheckTest, NamesTheFieldOfTheWrongType) {
  EXPECT_THAT(Why(Key(3, 0) + "\x01"), StartsWith("text: has the wrong wire type; it must be string"));
  EXPECT_THAT(Why(InSampling(Key(1, 2) + "\x01x")), StartsWith("sampling.temperature: has the wrong wire type"));
  EXPECT_THAT(Why(InSampling(Key(1, 1) + "12345678")), StartsWith("sampling.temperature"));
  EXPECT_THAT(Why(InSampling(Key(13, 5) + "1234")), StartsWith("sampling.max_tokens"));
  EXPECT_THAT(Why(Key(5, 0) + "\x01"), StartsWith("sampling: has the wrong wire type"));
  EXPECT_THAT(Why(InSampling(Key(8, 2) + "\x02" + Key(2, 0) + "\x01")), StartsWith("sampling.logit_bias.value"));
  EXPECT_THAT(Why(Key(3, 3) + Key(3, 4)), StartsWith("text")) << "a group";
}

TEST(WireCheckTest, NamesTheFieldThatIsNotUtf8) {
  EXPECT_THAT(Why(Key(3, 2) + "\x02z\xff"), StartsWith("text: is not valid UTF-8 (byte 1)"));
  EXPECT_THAT(Why(Key(3, 2) + "\x02z\xc3"), StartsWith("text: is not valid UTF-8 (byte 1)")) << "cut short";
}

TEST(WireCheckTest, NestedStringsToo) {
  EXPECT_THAT(Why(InSampling("\x82\x01\x01\xff")), StartsWith("sampling.stop: is not valid UTF-8"));
  EXPECT_THAT(Why(Key(11, 2) + "\x03" + Key(1, 2) + "\x01\xff"), StartsWith("trace.traceparent: is not valid UTF-8"));
}

TEST(WireCheckTest, LetsUnknownFieldsThrough) {
  EXPECT_TRUE(Check("\xfa\x06\x03xyz").ok());  // field 111
  EXPECT_TRUE(Check(InSampling("\xfa\x06\x03xyz")).ok());
}

TEST(WireCheckTest, RefusesWhatIsNoMessage) {
  EXPECT_THAT(Why("\xff\xff\xff"), HasSubstr("is not a valid sluice.v1.GenerateRequest"));
  EXPECT_THAT(Why(Key(3, 2) + "\x05hi"), HasSubstr("GenerateRequest")) << "cut short";
  EXPECT_THAT(Why(InSampling("\x0d\x01")), StartsWith("sampling: is not a valid sluice.v1.SamplingParams"));
}

// Whatever passes is parsed by protobuf, and nothing crashes.
TEST(WireCheckTest, AgreesWithTheParserOnRandomBytes) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 rng(seed);
  pb::GenerateRequest request;
  request.set_text("hello");
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->add_stop("stop");
  request.mutable_trace()->set_traceparent("00-1");
  const std::string good = request.SerializeAsString();
  int passed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint64_t n = 1 + rng() % 3; n > 0; --n) bytes[rng() % bytes.size()] = char(rng());
    if (rng() % 8 == 0) bytes.resize(rng() % bytes.size());
    if (!Check(bytes).ok()) continue;
    ++passed;
    EXPECT_TRUE(request.ParseFromString(bytes)) << "seed " << seed << ", round " << i;
  }
  EXPECT_GT(passed, 100);
}

}  // namespace
}  // namespace sluice::router
