#include "config/print_options.h"

#include <algorithm>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "config/yaml_options.h"

namespace sluice::config {
namespace {

constexpr size_t kWidth = 100;  // of comments

std::string AsComment(const std::string& text) {
  std::string out, line = "#";
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (line.size() + 1 + word.size() > kWidth && line.size() > 1) {
      absl::StrAppend(&out, line, "\n");
      line = "#";
    }
    absl::StrAppend(&line, " ", word);
  }
  return out + line + "\n";
}

// The name that a file has it under: of a flag with two, the one that turns it on.
const std::string& KeyOf(const CLI::Option& option) {
  return option.get_lnames().front();
}

// As it was given, by flag or file; empty: it was not.
std::vector<std::string> Given(const CLI::Option& option) {
  return option.results();
}

std::string ValueText(const CLI::Option& option, const std::vector<std::string>& values) {
  if (!TakesList(option)) return Quoted(values.back());
  return absl::StrCat(
      "[",
      absl::StrJoin(values, ", ",
                    [](std::string* out, const std::string& v) {
                      // Within brackets a comma or a colon would end a plain one.
                      const bool plain = v.find_first_of(",:") == std::string::npos;
                      absl::StrAppend(
                          out,
                          plain ? Quoted(v)
                                : absl::StrCat("\"", absl::StrReplaceAll(v, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\""));
                    }),
      "]");
}

std::string Default(const CLI::Option& option) {
  const std::string& text = option.get_default_str();
  return text == "[]" || text == "{}" ? "" : text;
}

// Written out, such a default would count as given and exclude the other one.
bool OnlyAsComment(const CLI::Option& option) {
  return !option.get_excludes().empty();
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"<", "&lt;"}});
}

}  // namespace

std::vector<CLI::Option*> ConfigurableOptions(const CLI::App& app) {
  std::vector<CLI::Option*> out;
  for (CLI::Option* option : const_cast<CLI::App&>(app).get_options({})) {
    const bool own = option == app.get_help_ptr() || option == app.get_config_ptr() || option == app.get_version_ptr();
    if (!own && option->get_configurable() && !option->get_group().empty() && !option->get_lnames().empty()) {
      out.push_back(option);
    }
  }
  return out;
}

bool IsFlag(const CLI::Option& option) {
  return option.get_items_expected_min() == 0;
}

bool TakesList(const CLI::Option& option) {
  return option.get_items_expected_max() > 1;
}

std::string TypeOf(const CLI::Option& option) {
  if (IsFlag(option)) return "true or false";
  // CLI11 puts what it checks behind the type: "N:INT in [0 - 65535]", "TEXT:{a,b}", "BYTES:SIZE [b, ...]".
  std::string type = option.get_type_name();
  if (const size_t size = type.find(":SIZE ["); size != std::string::npos) return type.substr(0, size);
  if (type.ends_with(":")) type.pop_back();  // a check that says nothing about itself
  for (const char* mark : {":{", ":INT in [", ":UINT in [", ":FLOAT in ["}) {
    const size_t at = type.find(mark);
    if (at == std::string::npos) continue;
    type = type.substr(at + std::string_view(mark).size());
    absl::StrReplaceAll({{"]", ""}, {"}", ""}, {" - ", " to "}, {",", ", "}}, &type);
    break;
  }
  if (type == "TEXT") return "text";
  return type == "INT" || type == "UINT" || type == "FLOAT" ? "number" : type;
}

std::string PrintConfig(const CLI::App& app) {
  std::string out =
      absl::StrCat("# Options of ", app.get_name(), ". What begins with # is a comment: there the default holds.\n");
  for (const CLI::Option* option : ConfigurableOptions(app)) {
    absl::StrAppend(&out, "\n", AsComment(option->get_description()));
    const std::string& key = KeyOf(*option);
    if (const std::vector<std::string> given = Given(*option); !given.empty()) {
      absl::StrAppend(&out, key, ": ", ValueText(*option, given), "\n");
    } else if (const std::string value = Default(*option); value.empty()) {
      absl::StrAppend(&out, "# ", key, ":\n");
    } else {
      absl::StrAppend(&out, OnlyAsComment(*option) ? "# " : "", key, ": ", ValueText(*option, {value}), "\n");
    }
  }
  return out;
}

std::string PrintOptionTable(const CLI::App& app) {
  std::string out = "| option | takes | default | |\n|---|---|---|---|\n";
  for (const CLI::Option* option : ConfigurableOptions(app)) {
    const std::string value = Default(*option);
    absl::StrAppend(&out, "| `", KeyOf(*option), "` | ", Escaped(TypeOf(*option)),
                    TakesList(*option) ? " (several)" : "", " | ",
                    option->get_required() ? "needed"
                    : value.empty()        ? ""
                                           : absl::StrCat("`", value, "`"),
                    " | ", Escaped(option->get_description()), " |\n");
  }
  return out;
}

}  // namespace sluice::config
