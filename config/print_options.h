// The options of a CLI::App as a YAML file and as a Markdown table. Pure.
#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"

namespace sluice::config {

// Those that a file may hold, in the order of --help.
std::vector<CLI::Option*> ConfigurableOptions(const CLI::App& app);

bool IsFlag(const CLI::Option& option);
bool TakesList(const CLI::Option& option);
// What a value is: "0 to 65535", "auto, cpu or cuda", "FILE", ...
std::string TypeOf(const CLI::Option& option);

// What is in force, each with its help above. Defaults are written out, but for those that exclude another option or
// mean something else when they are given: these are comments. A server that reads it has the same options.
std::string PrintConfig(const CLI::App& app);

// Rows of docs/configuration.md: option, what it takes, default, help.
std::string PrintOptionTable(const CLI::App& app);

}  // namespace sluice::config
