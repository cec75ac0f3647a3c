#include "proto/discovery/registry_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::discovery {
namespace {

TEST(RegistryAddress, Reads) {
  EXPECT_TRUE(ParseRegistry("embedded")->embedded());
  const auto one = ParseRegistry("etcd://localhost:2379");
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(one->endpoints, testing::ElementsAre("localhost:2379"));
  EXPECT_EQ(one->routers(), "/sluice/routers/");
  const auto three = ParseRegistry("etcd://a:1,[::1]:2,10.0.0.1:3/prod/eu/");
  ASSERT_TRUE(three.ok());
  EXPECT_THAT(three->endpoints, testing::ElementsAre("a:1", "[::1]:2", "10.0.0.1:3"));
  EXPECT_EQ(RouterKey(*three, 0xab), "/prod/eu/routers/00000000000000ab");
  EXPECT_EQ(ParseRegistry("etcd://a:1/")->prefix, "/sluice");
}

TEST(RegistryAddress, Refuses) {
  for (const char* bad : {"", "etcd", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:65536", "etcd://a:x", "etcd://:1",
                          "etcd://a:1,", "etcd://a:1,,b:2", "http://a:1", "etcd://a b:1", "etcd://::1:2"}) {
    const auto parsed = ParseRegistry(bad);
    EXPECT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().message().find('\n'), absl::string_view::npos);
  }
}

TEST(RegistryAddress, SaysWhatWorkersDial) {
  EXPECT_EQ(*DialledAddress("127.0.0.1", "", 50051), "127.0.0.1:50051");
  EXPECT_EQ(*DialledAddress("0.0.0.0", "router-1.example", 1), "router-1.example:1");
  EXPECT_EQ(*DialledAddress("::1", "", 1), "[::1]:1");
  EXPECT_EQ(*DialledAddress("[::1]", "", 1), "[::1]:1");
  EXPECT_FALSE(DialledAddress("0.0.0.0", "", 1).ok());
  EXPECT_FALSE(DialledAddress("::", "", 1).ok());
  EXPECT_FALSE(DialledAddress("127.0.0.1", "a/b", 1).ok());
}

}  // namespace
}  // namespace sluice::discovery
