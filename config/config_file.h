// Options of a server from a YAML file, and its options as YAML and as a table: all from the server's one CLI::App.
//
// A file holds either options (the long names of flags, with dashes or underscores) or sections with options; then a
// server reads those sections that are its own, later ones over earlier ones. Flags win over the file. Errors are
// CLI::ConfigError, in one line that names file, line and key: "cluster.yaml:7: max-movess: no such option; did you
// mean max-moves?".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/App.hpp"

namespace sluice::config {

// Sections that a server reads, in ascending order of precedence.
using Sections = std::vector<std::string>;

// Adds --config, --print-config and the hidden --print-options, and reads the file when `app` parses. Call it after all
// other options were added.
void AddConfigOptions(CLI::App& app, const Sections& sections);

// Before `app` parses: what to print instead, which is the table of --print-options. With --print-config no option is
// needed from here on.
std::optional<std::string> TextBefore(CLI::App& app, int argc, const char* const* argv);

// After it has parsed: what to print instead of serving.
std::optional<std::string> TextInstead(const CLI::App& app);

}  // namespace sluice::config
