#include "config/config_file.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "config/option_names.h"
#include "config/print_options.h"
#include "config/yaml_options.h"

namespace sluice::config {
namespace {

constexpr char kPrintConfig[] = "--print-config";
constexpr char kPrintOptions[] = "--print-options";

// Fills the options of an App by itself and hands nothing to CLI11, so that errors can say where they are.
class YamlConfig final : public CLI::Config {
 public:
  YamlConfig(CLI::App* app, Sections sections) : app_(*app), sections_(std::move(sections)) {}

  std::string to_config(const CLI::App* app, bool, bool, std::string) const override { return PrintConfig(*app); }
  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override;

 private:
  [[noreturn]] void Fail(const Setting& setting, const std::string& what) const {
    throw CLI::ConfigError(absl::StrCat(file(), ":", setting.line, ": ", setting.key, ": ", what),
                           CLI::ExitCodes::ConfigError);
  }
  std::string file() const { return app_.get_config_ptr()->as<std::string>(); }
  CLI::Option* Find(const Setting& setting) const;
  void Apply(const Setting& setting, CLI::Option* option) const;

  CLI::App& app_;
  const Sections sections_;
};

CLI::Option* YamlConfig::Find(const Setting& setting) const {
  for (CLI::Option* option : ConfigurableOptions(app_)) {
    const auto& names = option->get_lnames();
    if (std::find(names.begin(), names.end(), setting.key) != names.end()) return option;
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : ConfigurableOptions(app_)) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::string near = Nearest(setting.key, names);
  Fail(setting, absl::StrCat(app_.get_name(), " has no such option",
                             near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

void YamlConfig::Apply(const Setting& setting, CLI::Option* option) const {
  if (IsFlag(*option)) {
    const std::string& value = setting.values.front();
    if (setting.list || (value != "true" && value != "false")) {
      Fail(setting, absl::StrCat("true or false is needed", setting.list ? "" : ", got " + Quoted(value)));
    }
    option->add_result(option->get_flag_value(setting.key, value));
  } else {
    if (setting.values.size() > 1 && !TakesList(*option)) Fail(setting, "one value is needed, got a list");
    for (const std::string& value : setting.values) option->add_result(value);
  }
  try {
    option->run_callback();
  } catch (const CLI::ConversionError&) {
    Fail(setting, absl::StrCat(Quoted(setting.values.front()), " is not what it takes (", TypeOf(*option), ")"));
  } catch (const CLI::ParseError& error) {
    // "--name: what is wrong"; the name stands before it already.
    std::string what = error.what();
    const std::string name = option->get_name() + ": ";
    if (what.starts_with(name)) what.erase(0, name.size());
    Fail(setting, what);
  }
}

std::vector<CLI::ConfigItem> YamlConfig::from_config(std::istream& in) const {
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto settings = ReadSettings(file(), text, sections_);
  if (!settings.ok()) throw CLI::ConfigError(std::string(settings.status().message()), CLI::ExitCodes::ConfigError);
  std::vector<std::pair<CLI::Option*, const Setting*>> found;
  for (const Setting& setting : *settings) {
    CLI::Option* option = Find(setting);
    for (const auto& [other, where] : found) {
      if (other == option) {
        Fail(setting, absl::StrCat("line ", where->line, " (", where->key, ") says that already"));
      }
    }
    found.emplace_back(option, &setting);
  }
  // Flags win: also over an option that does not go with them.
  const auto flag_given = [](const CLI::Option* option) { return option->count() > 0; };
  std::erase_if(found, [&](const auto& entry) {
    const auto& excludes = entry.first->get_excludes();
    return flag_given(entry.first) || std::any_of(excludes.begin(), excludes.end(), flag_given);
  });
  for (const auto& [option, setting] : found) Apply(*setting, option);
  return {};
}

}  // namespace

void AddConfigOptions(CLI::App& app, const Sections& sections) {
  std::string names;
  for (const std::string& section : sections) absl::StrAppend(&names, names.empty() ? "" : ", ", section);
  app.config_formatter(std::make_shared<YamlConfig>(&app, sections));
  app.set_config("--config", "",
                 absl::StrCat("YAML file with options, by the names of flags, which win over it; they may stand in "
                              "sections, of which this program reads ",
                              names))
      ->type_name("FILE")
      ->configurable(false);
  app.add_flag_callback(
         kPrintConfig, [] {}, "Print all options as they are now, as such a file, and end")
      ->configurable(false);
  app.add_flag_callback(
         kPrintOptions, [] {}, "")
      ->configurable(false)
      ->group("");
}

std::optional<std::string> TextBefore(CLI::App& app, int argc, const char* const* argv) {
  const auto given = [&](const char* flag) {
    return std::any_of(argv, argv + argc, [flag](const char* argument) { return std::string_view(argument) == flag; });
  };
  if (given(kPrintOptions)) return PrintOptionTable(app);
  if (given(kPrintConfig)) {
    for (CLI::Option* option : app.get_options({})) option->required(false);
  }
  return std::nullopt;
}

std::optional<std::string> TextInstead(const CLI::App& app) {
  if (app.count(kPrintConfig) > 0) return PrintConfig(app);
  return std::nullopt;
}

}  // namespace sluice::config
