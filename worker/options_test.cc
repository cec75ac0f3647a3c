#include "worker/options.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const RoleDescription kRole = {.program = "sluice_x", .summary = "Does x.", .roles = {"both", "decode"}};

absl::StatusOr<ParsedOptions> Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "sluice_x");
  return ParseOptions(kRole, int(args.size()), args.data());
}

WorkerOptions Good(const std::vector<const char*>& args) {
  const auto parsed = Parse(args);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() && parsed->options ? *parsed->options : WorkerOptions();
}

std::string Bad(const std::vector<const char*>& args) {
  const auto parsed = Parse(args);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(parsed.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(Options, ARoleHasItsOwnDefaultsAndFlags) {
  RoleDescription role = {.program = "sluice_y", .summary = "Does y.", .roles = {"prefill"}, .max_step_tokens = 256};
  const char* const args[] = {"sluice_y", "--model", "m.gguf", "--fault", "corrupt=3,lose=7"};
  EXPECT_FALSE(ParseOptions(role, 5, args).ok()) << "--fault is for those who offer it";
  role.takes_faults = true;
  const auto parsed = ParseOptions(role, 5, args);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->options->role, v1::ROLE_PREFILL);
  EXPECT_EQ(parsed->options->max_step_tokens, 256);
  EXPECT_EQ(parsed->options->fault, "corrupt=3,lose=7");
  const char* const bad[] = {"sluice_y", "--model", "m.gguf", "--fault", "bend=3"};
  EXPECT_THAT(std::string(ParseOptions(role, 5, bad).status().message()), HasSubstr("bend=3"));
}

TEST(Options, Defaults) {
  const WorkerOptions o = Good({"--model", "m.gguf"});
  EXPECT_EQ(o.model, "m.gguf");
  EXPECT_EQ(o.role, v1::ROLE_BOTH);
  EXPECT_EQ(o.host, "127.0.0.1");
  EXPECT_EQ(o.port, 0);
  EXPECT_EQ(o.threads, 0);
  EXPECT_EQ(o.kv_bytes, int64_t{1} << 30);
  EXPECT_EQ(o.kv_blocks, 0);
  EXPECT_EQ(o.block_size, 16);
  EXPECT_EQ(o.max_step_tokens, 128);
  EXPECT_TRUE(o.profile);
  EXPECT_EQ(o.max_seqs, 64);
  EXPECT_EQ(o.lease_ms, 10000);
  EXPECT_TRUE(o.routers.empty() && o.cpus.empty());
}

TEST(Options, ARegistryInTheFormThatRoutersTake) {
  EXPECT_TRUE(Good({"--model", "m"}).registry.embedded());
  EXPECT_TRUE(Good({"--model", "m", "--registry", "embedded"}).registry.embedded());
  const WorkerOptions o = Good({"--model", "m", "--registry", "etcd://a:1,b:2/x"});
  EXPECT_THAT(o.registry.endpoints, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(o.registry.routers(), "/x/routers/");
  EXPECT_THAT(Bad({"--model", "m", "--registry", "zoo://a:1"}), HasSubstr("zoo://a:1"));
  EXPECT_THAT(Bad({"--model", "m", "--registry", "etcd://a"}), HasSubstr("HOST:PORT"));
}

TEST(Options, TakesEverything) {
  const WorkerOptions o = Good({"--model",
                                "m",
                                "--router",
                                "a:1",
                                "--router",
                                "[::1]:2",
                                "--role",
                                "decode",
                                "--host",
                                "::1",
                                "--port",
                                "5",
                                "--compute",
                                "f32",
                                "--kv-dtype",
                                "auto",
                                "--threads",
                                "3",
                                "--cpus",
                                "0-2,7,1",
                                "--kv-bytes",
                                "512M",
                                "--block-size",
                                "32",
                                "--max-seqs",
                                "8",
                                "--max-step-tokens",
                                "64",
                                "--max-context",
                                "1000",
                                "--lease-ms",
                                "500",
                                "--stuck-after-ms",
                                "700",
                                "--step-target-ms",
                                "25",
                                "--drafts",
                                "3",
                                "--packed-cache",
                                "some/where",
                                "--log-level",
                                "error",
                                "--advertise",
                                "h"});
  EXPECT_THAT(o.routers, ElementsAre("a:1", "[::1]:2"));
  EXPECT_EQ(o.role, v1::ROLE_DECODE);
  EXPECT_THAT(o.cpus, ElementsAre(0, 1, 2, 7));
  EXPECT_EQ(o.kv_bytes, int64_t{512} << 20);
  EXPECT_EQ(o.compute, "f32");
  EXPECT_EQ(o.stuck_after_ms, 700);
  EXPECT_EQ(o.step_target_ms, 25);
  EXPECT_EQ(o.drafts, 3);
  EXPECT_EQ(o.packed_cache, "some/where");
  EXPECT_EQ(Good({"--model", "m", "--no-packed-cache"}).packed_cache, "");
  EXPECT_EQ(Good({"--model", "m", "--compute", "int8"}).compute, "int8");
  EXPECT_EQ(Good({"--model", "m", "--kv-dtype", "int8"}).kv_dtype, "int8");
  EXPECT_EQ(Good({"--model", "m", "--compute", "int8", "--kv-dtype", "bf16"}).kv_dtype, "bf16");
  EXPECT_EQ(Good({"--model", "m"}).gemm, "own");
  EXPECT_EQ(Good({"--model", "m", "--weights", "int8"}).weights, "int8");
  EXPECT_EQ(Good({"--model", "m", "--gemm", "auto", "--gemm-rows", "9"}).gemm_rows, 9);
  EXPECT_EQ(Good({"--model", "m", "--gemm", "cublaslt", "--cublaslt-library", "x"}).cublaslt_library, "x");
  EXPECT_EQ(o.advertise, "h");
  EXPECT_EQ(Good({"--model", "m", "--kv-bytes", "2G"}).kv_bytes, int64_t{2} << 30);
  EXPECT_EQ(Good({"--model", "m", "--kv-bytes", "1000"}).kv_bytes, 1000);
  EXPECT_EQ(Good({"--model", "m", "--kv-blocks", "12"}).kv_blocks, 12);
}

TEST(Options, NamesTheFlagThatIsWrong) {
  EXPECT_THAT(Bad({}), HasSubstr("--model"));
  for (const std::vector<const char*>& args :
       std::vector<std::vector<const char*>>{{"--router", "nowhere"},
                                             {"--router", ":5"},
                                             {"--router", "a:0"},
                                             {"--router", "a:70000"},
                                             {"--role", "prefill"},
                                             {"--port", "-1"},
                                             {"--port", "65536"},
                                             {"--port", "x"},
                                             {"--kv-dtype", "f32"},
                                             {"--kv-dtype", "int4"},
                                             {"--kv-dtype", "int8", "--compute", "f32"},
                                             {"--compute", "f16"},
                                             {"--gemm", "mkl"},
                                             {"--gemm-rows", "0"},
                                             {"--weights", "int4"},
                                             {"--weights", "int8", "--backend", "cpu"},
                                             {"--weights", "int8", "--gemm", "cublaslt"},
                                             {"--threads", "-1"},
                                             {"--cpus", "3-1"},
                                             {"--cpus", "a"},
                                             {"--cpus", "1,,2"},
                                             {"--kv-bytes", "-5"},
                                             {"--kv-bytes", "0"},
                                             {"--kv-bytes", "99999999T"},
                                             {"--kv-blocks", "0"},
                                             {"--block-size", "0"},
                                             {"--max-step-tokens", "0"},
                                             {"--max-seqs", "0"},
                                             {"--max-seqs", "1000"},
                                             {"--max-context", "-1"},
                                             {"--lease-ms", "0"},
                                             {"--log-level", "loud"}}) {
    std::vector<const char*> all = {"--model", "m"};
    all.insert(all.end(), args.begin(), args.end());
    EXPECT_THAT(Bad(all), HasSubstr(args[0])) << args[1];
  }
  EXPECT_THAT(Bad({"--model", "m", "--kv-blocks", "5", "--kv-bytes", "5M"}), HasSubstr("--kv-b"));
  EXPECT_THAT(Bad({"--model", "m", "--no-such-flag"}), HasSubstr("--no-such-flag"));
}

TEST(Options, HelpAndVersionAreTexts) {
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_FALSE(help->options);
  EXPECT_THAT(help->text, HasSubstr("--kv-bytes"));
  EXPECT_THAT(help->text, HasSubstr("sluice_x --model"));
  const auto version = Parse({"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_THAT(version->text, HasSubstr("sluice_x "));
}

TEST(Options, CpuLists) {
  EXPECT_THAT(*ParseCpuList("4"), ElementsAre(4));
  EXPECT_THAT(*ParseCpuList("2-4,0"), ElementsAre(0, 2, 3, 4));
  for (const char* bad : {"", "-", "1-", "-2", "1-2-3", "1;2", "0-99999999"})
    EXPECT_FALSE(ParseCpuList(bad).ok()) << bad;
}

}  // namespace
}  // namespace sluice::worker
