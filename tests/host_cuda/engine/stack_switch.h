// The switch of stacks itself (x86-64, System V), inlined into whoever waits: the compiler then saves the registers
// that live across it, and no others. Nothing is written to a stack. Rounding modes are not saved, as nothing leaves
// them changed across a switch.
#pragma once

#include <cstdint>

namespace host_cuda {

// Where a stack goes on; the order of the members is known below.
struct Place {
  void* sp = nullptr;
  void* bp = nullptr;
  void* ip = nullptr;
};

// Leaves the running stack at *from for *to. Returns when somebody comes back to *from.
inline void SwitchStacks(Place* from, const Place* to) {
  asm volatile(
      "movq %%rsp, 0(%0)\n\t"
      "movq %%rbp, 8(%0)\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rax, 16(%0)\n\t"
      "movq 0(%1), %%rsp\n\t"
      "movq 8(%1), %%rbp\n\t"
      "jmpq *16(%1)\n"
      "1:"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
        "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
        "memory", "cc");
}

// The place of a stack on which nothing runs: a switch to it calls entry(), which must never return.
inline Place FreshPlace(char* top, void (*entry)()) {
  return {top - sizeof(void*), nullptr, reinterpret_cast<void*>(entry)};  // aligned as after a call
}

}  // namespace host_cuda
