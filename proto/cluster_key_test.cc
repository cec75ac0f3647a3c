#include "proto/cluster_key.h"

#include <cstdio>
#include <fstream>
#include <set>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

// Made with Python: hmac.new(b"Jefe", b"what do ya want\0\1\0\0\0\0\0\0\0 for nothing?", "sha256").hexdigest().
TEST(ClusterKey, GoldenValue) {
  EXPECT_EQ(absl::BytesToHexString(ClusterKey("Jefe").Proof("what do ya want", {1}, " for nothing?")),
            "fea96b8be9db8ded7a3836580e50f483d28eb5db62f79b8d5041173f003cceb5");
}

TEST(ClusterKey, AProofIsOfItsPurposeItsNumbersItsBytesAndItsKey) {
  const ClusterKey key("0123456789abcdef"), other("0123456789abcdeg");
  const std::string proof = key.Proof("work", {1, 2}, "x");
  EXPECT_TRUE(key.Accepts(proof, "work", {1, 2}, "x"));
  EXPECT_FALSE(key.Accepts(proof, "Work", {1, 2}, "x"));
  EXPECT_FALSE(key.Accepts(proof, "work", {2, 1}, "x"));
  EXPECT_FALSE(key.Accepts(proof, "work", {1, 2}, ""));
  EXPECT_FALSE(other.Accepts(proof, "work", {1, 2}, "x"));
  EXPECT_FALSE(key.Accepts("", "work", {1, 2}, "x"));
  EXPECT_FALSE(key.Accepts(proof.substr(1), "work", {1, 2}, "x"));
  for (size_t bit = 0; bit < proof.size() * 8; ++bit) {
    std::string changed = proof;
    changed[bit / 8] = char(changed[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(key.Accepts(changed, "work", {1, 2}, "x"));
  }
}

TEST(ClusterKey, WithoutOneNothingIsAskedForButAKeyRefusesThatProof) {
  const ClusterKey none, key("0123456789abcdef");
  EXPECT_TRUE(none.Accepts("", "work", {1}));
  EXPECT_TRUE(none.Accepts(key.Proof("work", {1}), "work", {1}));
  EXPECT_FALSE(key.Accepts(none.Proof("work", {1}), "work", {1}));
}

TEST(ClusterKey, MasksAndUnmasks) {
  const ClusterKey none, key("0123456789abcdef"), other("0123456789abcdeg");
  std::string text(100, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = char(i);
  const std::string masked = key.Mask("kv", {1, 2}, text);
  EXPECT_EQ(key.Mask("kv", {1, 2}, masked), text);
  EXPECT_NE(other.Mask("kv", {1, 2}, masked), text);
  EXPECT_NE(key.Mask("kv", {1, 3}, masked), text);
  EXPECT_EQ(none.Mask("kv", {1, 2}, text), text);
  int same = 0;
  for (size_t i = 0; i < text.size(); ++i) same += masked[i] == text[i];
  EXPECT_LT(same, 10);
}

TEST(ClusterKey, ReadsAFileAndNamesItInErrors) {
  const std::string path = testing::TempDir() + "/cluster_key_test.key";
  EXPECT_TRUE(ClusterKey::Read("")->empty());
  std::ofstream(path) << "0123456789abcdef\n";
  const auto key = ClusterKey::Read(path);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->Proof("a", {}), ClusterKey("0123456789abcdef").Proof("a", {}));
  std::ofstream(path) << "0123456789abcde\n";
  EXPECT_NE(ClusterKey::Read(path).status().message().find(path + " has 15 bytes"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(ClusterKey::Read(path).status().message().find(path), std::string::npos);
}

}  // namespace
}  // namespace sluice
