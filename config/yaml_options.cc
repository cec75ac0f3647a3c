#include "config/yaml_options.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/option_names.h"
#include "yaml-cpp/yaml.h"

namespace sluice::config {
namespace {

const std::vector<std::string>& AllSections() {
  static const std::vector<std::string> sections = {"common", "router", "workers", "prefill", "decode"};
  return sections;
}

bool IsSection(const std::string& name) {
  return std::find(AllSections().begin(), AllSections().end(), name) != AllSections().end();
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  absl::Status Read(const YAML::Node& root, const std::vector<std::string>& sections);
  std::vector<Setting> Take() { return std::move(settings_); }

 private:
  static int LineOf(const YAML::Node& node) { return std::max(0, node.Mark().line) + 1; }
  absl::Status Bad(int line, const std::string& key, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", line, ": ", key, key.empty() ? "" : ": ", what));
  }
  // Every key once, and a plain text.
  absl::Status CheckKeys(const YAML::Node& map) const;
  absl::Status ReadMap(const YAML::Node& map);
  absl::Status ReadOne(const std::string& key, int line, const YAML::Node& value, Setting& setting) const;

  const std::string file_;
  std::vector<Setting> settings_;
};

absl::Status Reader::CheckKeys(const YAML::Node& map) const {
  std::map<std::string, int> lines;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) return Bad(LineOf(entry.first), "", "a key must be the name of an option");
    const std::string key = WithDashes(entry.first.Scalar());
    const auto [at, fresh] = lines.emplace(key, LineOf(entry.first));
    if (!fresh) return Bad(LineOf(entry.first), key, absl::StrCat("stands in line ", at->second, " already"));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadOne(const std::string& key, int line, const YAML::Node& value, Setting& setting) const {
  setting = {key, {}, value.IsSequence(), line};
  const std::string remedy = "has no value; leave the line out for the default";
  if (value.IsNull()) return Bad(line, key, remedy);
  if (value.IsMap()) return Bad(line, key, "needs a value, and these are keys of their own");
  if (value.IsScalar()) {
    setting.values.push_back(value.Scalar());
    return absl::OkStatus();
  }
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) return Bad(LineOf(item), key, "needs a list of plain values");
    setting.values.push_back(item.Scalar());
  }
  return setting.values.empty() ? Bad(line, key, remedy) : absl::OkStatus();
}

absl::Status Reader::ReadMap(const YAML::Node& map) {
  if (absl::Status status = CheckKeys(map); !status.ok()) return status;
  for (const auto& entry : map) {
    Setting setting;
    const absl::Status status = ReadOne(WithDashes(entry.first.Scalar()), LineOf(entry.first), entry.second, setting);
    if (!status.ok()) return status;
    std::erase_if(settings_, [&](const Setting& earlier) { return earlier.key == setting.key; });
    settings_.push_back(std::move(setting));
  }
  return absl::OkStatus();
}

absl::Status Reader::Read(const YAML::Node& root, const std::vector<std::string>& sections) {
  if (root.IsNull()) return absl::OkStatus();  // an empty file
  if (!root.IsMap()) return Bad(LineOf(root), "", "lines of the form \"option: value\" are needed");
  if (absl::Status status = CheckKeys(root); !status.ok()) return status;
  // Workers have an option --router: the section of that name has keys of its own.
  const auto is_section = [](const auto& entry) { return entry.second.IsMap(); };
  if (std::none_of(root.begin(), root.end(), is_section)) {
    const bool empty = std::any_of(root.begin(), root.end(), [](const auto& entry) {
      return entry.second.IsNull() && IsSection(entry.first.Scalar());
    });
    if (!empty) return ReadMap(root);
  }
  for (const auto& entry : root) {
    const std::string name = entry.first.Scalar();
    const int line = LineOf(entry.first);
    if (!IsSection(name) && is_section(entry)) {
      const std::string near = Nearest(name, AllSections());
      return Bad(line, name,
                 absl::StrCat("no such section; there are ", absl::StrJoin(AllSections(), ", "),
                              near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
    }
    if (!is_section(entry) && !(entry.second.IsNull() && IsSection(name))) {
      return Bad(line, name, "in a file with sections every option stands in one of them, such as common");
    }
  }
  for (const std::string& name : sections) {
    const YAML::Node section = root[name];
    if (!section || section.IsNull()) continue;
    if (absl::Status status = ReadMap(section); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Setting>> ReadSettings(const std::string& file, const std::string& text,
                                                  const std::vector<std::string>& sections) {
  Reader reader(file);
  // yaml-cpp reports by exceptions; they end here.
  try {
    if (absl::Status status = reader.Read(YAML::Load(text), sections); !status.ok()) return status;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", std::max(0, error.mark.line) + 1, ": not YAML: ", error.msg));
  }
  return reader.Take();
}

std::string Quoted(std::string_view text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_./+-@=,:").find(c) != std::string_view::npos;
  };
  const bool good = !text.empty() && std::all_of(text.begin(), text.end(), plain) && text.back() != ':' &&
                    (std::isalnum(static_cast<unsigned char>(text.front())) != 0 || text.front() == '/') &&
                    text != "null" && text != "Null" && text != "NULL";
  if (good) return std::string(text);
  YAML::Emitter out;
  out << YAML::DoubleQuoted << std::string(text);
  return out.c_str();
}

}  // namespace sluice::config
