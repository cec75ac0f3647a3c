#include "tests/host_cuda/ptx/calls.h"

#include <cstdio>
#include <string>

#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda::ptx {
namespace {

template <class T>
T Take(const unsigned char* arguments, size_t* offset) {
  *offset = (*offset + sizeof(T) - 1) / sizeof(T) * sizeof(T);
  T value;
  std::memcpy(&value, arguments + *offset, sizeof value);
  *offset += sizeof value;
  return value;
}

// One conversion: its text, and where its argument ends. `specification` is "%...c".
std::string Convert(const std::string& specification, const unsigned char* arguments, size_t* offset) {
  const char kind = specification.back();
  const bool is_long = specification.find('l') != std::string::npos || specification.find('z') != std::string::npos ||
                       specification.find('j') != std::string::npos || specification.find('t') != std::string::npos;
  char text[512];
  const char* const format = specification.c_str();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  if (std::string("fFeEgGaA").find(kind) != std::string::npos) {
    std::snprintf(text, sizeof text, format, Take<double>(arguments, offset));
  } else if (kind == 's') {
    std::snprintf(text, sizeof text, format, Take<const char*>(arguments, offset));
  } else if (kind == 'p') {
    std::snprintf(text, sizeof text, format, Take<void*>(arguments, offset));
  } else if (is_long) {
    std::snprintf(text, sizeof text, format, Take<long long>(arguments, offset));
  } else {
    std::snprintf(text, sizeof text, format, Take<int>(arguments, offset));
  }
#pragma GCC diagnostic pop
  return text;
}

}  // namespace

s32 VPrintf(const char* format, const unsigned char* arguments) {
  EngineScope scope;
  std::string text;
  size_t offset = 0;
  s32 conversions = 0;
  for (const char* c = format; *c != '\0'; ++c) {
    if (*c != '%') {
      text += *c;
      continue;
    }
    if (c[1] == '%') {
      text += *c++;
      continue;
    }
    std::string specification = "%";
    while (*++c != '\0') {
      if (*c == '*') {
        specification += std::to_string(Take<int>(arguments, &offset));
        continue;
      }
      specification += *c;
      if (std::string("diouxXcsfFeEgGaAp").find(*c) != std::string::npos) break;
    }
    if (*c == '\0') break;
    text += Convert(specification, arguments, &offset);
    ++conversions;
  }
  std::fputs(text.c_str(), stdout);
  return conversions;
}

void AssertFail(const char* message, const char* file, u32 line, const char* function) {
  Fail(Loc::current(), "assertion `%s' failed at %s:%u, in %s", message, file, line, function);
}

void Trap(const char* what, Loc where) {
  Fail(where, "%s", what);
}

void NanoSleep(Loc where) {
  this_machine->Yield(where);
}

u64 Clock() {
  thread_local u64 ticks = 0;
  return ++ticks;
}

}  // namespace host_cuda::ptx
