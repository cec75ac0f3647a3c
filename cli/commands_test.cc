// The command line as a person meets it: exit codes and one-line errors. Nothing listens on the port used here.
#include "cli/commands.h"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <streambuf>
#include <string>
#include <vector>

#include "cli/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome RunSluice(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "sluice");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = RunCommandLine(static_cast<int>(arguments.size()), arguments.data());
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(CommandsTest, HelpTeachesWithExamples) {
  Outcome outcome = RunSluice({"generate", "--help"});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.out, HasSubstr("Examples:"));
  EXPECT_THAT(outcome.out, HasSubstr("--max-tokens"));
  EXPECT_THAT(outcome.out, HasSubstr("Exit codes"));
  EXPECT_THAT(RunSluice({"--help"}).out, HasSubstr("130"));
}

// Takes nothing, like /dev/full.
struct FullBuffer final : std::streambuf {
  int overflow(int) override {
    errno = ENOSPC;
    return traits_type::eof();
  }
};

TEST(CommandsTest, OutputThatCannotBeWrittenIsOneLineAndAnError) {
  FullBuffer full;
  std::streambuf* const real = std::cout.rdbuf(&full);
  const Outcome outcome = RunSluice({"--help"});
  std::cout.rdbuf(real);
  std::cout.clear();
  EXPECT_EQ(outcome.code, kExitServer);
  EXPECT_EQ(outcome.err, "sluice: cannot write to standard output: No space left on device\n");
}

TEST(CommandsTest, WrongFlagsAreUsageErrors) {
  EXPECT_EQ(RunSluice({}).code, kExitUsage);
  EXPECT_EQ(RunSluice({"generate"}).code, kExitUsage);
  EXPECT_EQ(RunSluice({"generate", "--max-tokens", "many", "x"}).code, kExitUsage);
  EXPECT_EQ(RunSluice({"generate", "--token-ids", "1", "and a prompt"}).code, kExitUsage);
  EXPECT_EQ(RunSluice({"generate", "--token-ids", "1,b"}).code, kExitUsage);
  EXPECT_EQ(RunSluice({"generate", "--nonsense", "x"}).code, kExitUsage);
}

TEST(CommandsTest, NobodyListeningIsOneLineWithTheNextStep) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"status", "--router", "127.0.0.1:1"},
        std::vector<const char*>{"generate", "--router", "127.0.0.1:1", "--temperature", "-1", "--stop", "a", "x"}}) {
    Outcome outcome = RunSluice(arguments);
    EXPECT_EQ(outcome.code, kExitServer);
    EXPECT_THAT(outcome.err, HasSubstr("127.0.0.1:1"));
    EXPECT_THAT(outcome.err, HasSubstr("deploy/up"));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace sluice::cli
