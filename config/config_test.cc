// A file against an App: what a server would read, and what it would say.
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "config/config_file.h"
#include "config/option_names.h"
#include "config/print_options.h"
#include "config/yaml_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Options {
  std::string model, policy = "slo", folder = "/tmp";
  int max_moves = 4;
  bool graphs = true, packed = true;
  std::vector<std::string> routers;
  int64_t bytes = 1024;
  int blocks = 0;
};

std::unique_ptr<CLI::App> MakeApp(Options& o) {
  auto app = std::make_unique<CLI::App>("", "sluice_x");
  app->option_defaults()->always_capture_default();
  app->add_option("--model", o.model, "Model file")->required();
  app->add_option("--policy", o.policy, "How: \"slo\", or 2: prefix")->check(CLI::IsMember({"slo", "prefix"}));
  app->add_option("--max-moves", o.max_moves, "How often")->check(CLI::Range(0, 1000));
  app->add_flag("--graphs,!--no-graphs", o.graphs, "Whether")->default_str("true");
  CLI::Option* folder = app->add_option("--folder", o.folder, "Where");
  app->add_flag_callback(
         "--no-folder", [&o] { o.packed = false; }, "Nowhere")
      ->excludes(folder);
  app->add_option("--router", o.routers, "Several")
      ->check(CLI::Validator(
          [](std::string& text) { return text.find(':') == std::string::npos ? "no HOST:PORT" : ""; }, "", "address"));
  CLI::Option* bytes = app->add_option("--bytes", o.bytes, "Memory")->transform(CLI::AsSizeValue(false));
  app->add_option("--blocks", o.blocks, "instead")->excludes(bytes);
  AddConfigOptions(*app, {"common", "router"});
  return app;
}

std::string FileWith(const std::string& text) {
  const std::string path = testing::TempDir() + "config_test.yaml";
  std::ofstream(path) << text;
  return path;
}

// The error, or "".
std::string Parse(const std::string& text, Options& o, std::vector<std::string> flags = {}) {
  const std::unique_ptr<CLI::App> app = MakeApp(o);
  flags.push_back("--config");
  flags.push_back(FileWith(text));
  std::reverse(flags.begin(), flags.end());  // as CLI11 takes a vector
  try {
    app->parse(flags);
  } catch (const CLI::Error& error) {
    return error.what();
  }
  return "";
}

std::string ErrorOf(const std::string& text) {
  Options options;
  std::string error = Parse(text, options);
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  const std::string folder = testing::TempDir();
  return error.rfind(folder, 0) == 0 ? error.substr(folder.size()) : error;
}

TEST(ConfigTest, EveryKindOfOption) {
  Options o;
  ASSERT_EQ(Parse("model: m.gguf  # a comment\nmax_moves: 7\nno-graphs: true\nrouter: [a:1, 'b:2']\nbytes: 2G\npolicy: "
                  "prefix\n",
                  o),
            "");
  EXPECT_EQ(o.model, "m.gguf");
  EXPECT_EQ(o.max_moves, 7);
  EXPECT_FALSE(o.graphs);
  EXPECT_THAT(o.routers, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(o.bytes, int64_t{2} << 30);
  EXPECT_EQ(o.policy, "prefix");
  o = Options();
  ASSERT_EQ(Parse("model: m\nrouter: a:1\nno-graphs: false\nno-folder: false\n", o), "");
  EXPECT_TRUE(o.graphs);
  EXPECT_TRUE(o.packed) << "a flag that is false does nothing";
  EXPECT_THAT(o.routers, ElementsAre("a:1"));
}

TEST(ConfigTest, FlagsWin) {
  Options o;
  ASSERT_EQ(Parse("model: file\nmax-moves: 7\ngraphs: false\nbytes: 5\nrouter: [a:1]\n", o,
                  {"--max-moves=9", "--graphs", "--blocks", "3", "--router", "c:3"}),
            "");
  EXPECT_EQ(o.model, "file");
  EXPECT_EQ(o.max_moves, 9);
  EXPECT_TRUE(o.graphs);
  EXPECT_EQ(o.blocks, 3);
  EXPECT_EQ(o.bytes, 1024) << "what does not go with a flag is as if it weren't there";
  EXPECT_THAT(o.routers, ElementsAre("c:3"));
}

TEST(ConfigTest, SectionsOfOneFile) {
  Options o;
  const char kCluster[] =
      "common:\n  model: m\n  max-moves: 1\nprefill:\n  whatever: 5\nrouter:\n  max-moves: 2\ndecode:\n";
  ASSERT_EQ(Parse(kCluster, o), "");
  EXPECT_EQ(o.model, "m");
  EXPECT_EQ(o.max_moves, 2) << "the later section counts more";
  // A worker's option of that name is no section.
  ASSERT_EQ(Parse("model: m\nrouter: a:1\n", o), "");
  ASSERT_EQ(Parse("", o, {"--model", "m"}), "");
}

TEST(ConfigTest, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(ErrorOf("model: m\n\nmax-movess: 3\n"),
            "config_test.yaml:3: max-movess: sluice_x has no such option; did you mean max-moves?");
  EXPECT_EQ(ErrorOf("model: m\nquite-different: 3\n"),
            "config_test.yaml:2: quite-different: sluice_x has no such option");
  EXPECT_THAT(ErrorOf("model: m\nmax-moves: many\n"), HasSubstr("config_test.yaml:2: max-moves: "));
  EXPECT_THAT(ErrorOf("model: m\nmax-moves: 1001\n"),
              HasSubstr("config_test.yaml:2: max-moves: Value 1001 not in range"));
  EXPECT_THAT(ErrorOf("model: m\npolicy: best\n"), HasSubstr("config_test.yaml:2: policy: best not in {slo,prefix}"));
  EXPECT_EQ(ErrorOf("model: m\ngraphs: maybe\n"), "config_test.yaml:2: graphs: true or false is needed, got maybe");
  EXPECT_EQ(ErrorOf("model: m\ngraphs: [true]\n"), "config_test.yaml:2: graphs: true or false is needed");
  EXPECT_EQ(ErrorOf("model: [m, n]\n"), "config_test.yaml:1: model: one value is needed, got a list");
  EXPECT_EQ(ErrorOf("model: m\nrouter:\n  - a:1\n  - nonsense\n"), "config_test.yaml:2: router: no HOST:PORT");
  EXPECT_EQ(ErrorOf("model: m\nmax-moves:\n"),
            "config_test.yaml:2: max-moves: has no value; leave the line out for the default");
  EXPECT_EQ(ErrorOf("max-moves: 1\nmodel: m\nmax_moves: 2\n"),
            "config_test.yaml:3: max-moves: stands in line 1 already");
  EXPECT_EQ(ErrorOf("model: m\ngraphs: true\nno-graphs: true\n"),
            "config_test.yaml:3: no-graphs: line 2 (graphs) says that already");
  EXPECT_EQ(
      ErrorOf("common:\n  model: m\nrooter:\n  max-moves: 1\n"),
      "config_test.yaml:3: rooter: no such section; there are common, router, workers, prefill, decode; did you mean "
      "router?");
  EXPECT_EQ(
      ErrorOf("common:\n  model: m\nmax-moves: 1\n"),
      "config_test.yaml:3: max-moves: in a file with sections every option stands in one of them, such as common");
  EXPECT_THAT(ErrorOf("model: m\n  bad: [\n"), HasSubstr("config_test.yaml:2: not YAML: "));
  EXPECT_THAT(ErrorOf("- a\n- b\n"), HasSubstr("config_test.yaml:1: "));
  EXPECT_THAT(ErrorOf("model: {a: b}\n"), HasSubstr("config_test.yaml:1: model: no such section"));
  EXPECT_EQ(ErrorOf("common:\n  model: {a: b}\n"),
            "config_test.yaml:2: model: needs a value, and these are keys of their own");
  EXPECT_THAT(ErrorOf("model: m\nconfig: other.yaml\n"), HasSubstr("config: sluice_x has no such option"))
      << "no chains";
  EXPECT_EQ(ErrorOf("max-moves: 1\n"), "--model is required");
  Options o;
  const std::unique_ptr<CLI::App> app = MakeApp(o);
  EXPECT_THROW(app->parse("--model m --config /nonexistent.yaml"), CLI::FileError);
}

TEST(ConfigTest, WhatIsPrintedReadsBackToTheSame) {
  Options first;
  const std::unique_ptr<CLI::App> app = MakeApp(first);
  app->parse("--model \"odd: name #1 \\\\ 'q'\" --max-moves 3 --no-graphs --router a:1 --router b:2 --blocks 5");
  const std::string printed = PrintConfig(*app);
  EXPECT_THAT(printed, HasSubstr("# How often\nmax-moves: 3\n"));
  EXPECT_THAT(printed, HasSubstr("policy: slo\n")) << "defaults are there";
  EXPECT_THAT(printed, HasSubstr("# bytes: 1024\n")) << "given, it would exclude blocks";
  EXPECT_THAT(printed, HasSubstr("graphs: false\n"));
  Options second;
  ASSERT_EQ(Parse(printed, second), "") << printed;
  EXPECT_EQ(second.model, first.model);
  EXPECT_EQ(second.max_moves, 3);
  EXPECT_FALSE(second.graphs);
  EXPECT_EQ(second.routers, first.routers);
  EXPECT_EQ(second.blocks, 5);
  const std::unique_ptr<CLI::App> again = MakeApp(second = Options());
  again->parse("--config " + FileWith(printed));
  EXPECT_EQ(PrintConfig(*again), printed);
}

TEST(ConfigTest, PrintingNeedsNoOption) {
  Options o;
  const std::unique_ptr<CLI::App> app = MakeApp(o);
  const char* const print[] = {"sluice_x", "--print-config"};
  EXPECT_FALSE(TextBefore(*app, 2, print).has_value());
  app->parse(2, print);
  EXPECT_THAT(TextInstead(*app).value_or(""), HasSubstr("# model:\n"));
  const std::unique_ptr<CLI::App> table = MakeApp(o);
  const char* const options[] = {"sluice_x", "--print-options"};
  const std::string text = TextBefore(*table, 2, options).value_or("");
  EXPECT_THAT(text, HasSubstr("| `model` | text | needed | Model file |\n"));
  EXPECT_THAT(text, HasSubstr("| `max-moves` | 0 to 1000 | `4` | How often |\n"));
  EXPECT_THAT(text, HasSubstr("| `policy` | slo, prefix | `slo` |"));
  EXPECT_THAT(text, HasSubstr("| `graphs` | true or false | `true` | Whether |"));
  EXPECT_THAT(text, HasSubstr("(several)"));
  EXPECT_EQ(text.find("print-config"), std::string::npos);
}

TEST(OptionNamesTest, NearestIsNearOrNone) {
  EXPECT_EQ(Nearest("max-movess", {"max-moves", "max-seqs"}), "max-moves");
  EXPECT_EQ(Nearest("hsot", {"host", "port"}), "host");
  EXPECT_EQ(Nearest("temperature", {"host", "port"}), "");
  EXPECT_EQ(Nearest("x", {}), "");
  EXPECT_EQ(WithDashes("max_moves"), "max-moves");
}

TEST(QuotedTest, ReadsBackToTheSame) {
  for (const std::string text : {"plain", "a:1", "", "null", "~", "- x", "a # b", "tail:", "\"q\"", "new\nline", "\\",
                                 "true", "1e3", "[x]", "{", "été", " spaced ", "a, b"}) {
    const auto settings = ReadSettings("f", absl::StrCat("key: ", Quoted(text), "\n"), {});
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_THAT((*settings)[0].values, ElementsAre(text));
  }
}

}  // namespace
}  // namespace sluice::config
