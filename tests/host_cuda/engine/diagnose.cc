#include "tests/host_cuda/engine/diagnose.h"

#include <cxxabi.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

std::string Demangled(const std::string& name) {
  int status = 0;
  char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? plain : name;
  std::free(plain);
  return result;
}

std::string Text(const Dim3& d) {
  return Format("(%u,%u,%u)", d.x, d.y, d.z);
}

}  // namespace

std::string Format(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

void Fail(Loc where, const char* format, ...) {
  EngineScope scope;
  Machine& machine = *this_machine;
  {
    char what[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const Settings& settings = machine.settings;
    machine.error = Format("%s:%u: %s\n  in kernel ", where.file_name(), where.line(), what);
    machine.error +=
        Demangled(machine.kernel->name) + ", block " + Text(machine.block) + ", thread " + Text(machine.running->index);
    machine.error +=
        Format("\n  order %s, seed %llu, grid %llu of this thread", OrderName(settings.order),
               static_cast<unsigned long long>(settings.seed), static_cast<unsigned long long>(machine.grids));
    machine.error += machine.Waiters();
  }
  machine.Stop();
}

}  // namespace host_cuda
