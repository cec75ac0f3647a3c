// What stands under the flags in --help: examples and exit codes.
#pragma once

namespace sluice::cli {

extern const char kFooter[];
extern const char kGenerateFooter[];
extern const char kStatusFooter[];
extern const char kDrainFooter[];
extern const char kTraceFooter[];
extern const char kChatFooter[];
extern const char kTopFooter[];
extern const char kModelsFooter[];

}  // namespace sluice::cli
