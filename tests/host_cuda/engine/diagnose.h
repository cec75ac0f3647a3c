// What is wrong with a kernel, in words. A failure ends the grid: RunGrid returns the text.
#pragma once

#include <source_location>
#include <string>

namespace host_cuda {

// Of the .cu, as the translated code carries its lines.
using Loc = std::source_location;

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// Called on a CUDA thread. Adds its source line, kernel, block, thread and the order that led here. The thread's frames
// are abandoned, destructors don't run: callers hold nothing that has to be freed, and `format` and its arguments
// neither.
[[noreturn, gnu::format(printf, 2, 3)]] void Fail(Loc where, const char* format, ...);

}  // namespace host_cuda
