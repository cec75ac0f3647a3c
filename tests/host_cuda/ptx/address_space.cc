#include "tests/host_cuda/ptx/address_space.h"

namespace host_cuda::ptx {

AddressSpace SpaceOf(SharedWindow window, u64 address) {
  const auto within = [=](const void* begin, u64 bytes) { return address - reinterpret_cast<u64>(begin) < bytes; };
  if (address - window.begin < window.end - window.begin) return AddressSpace::kShared;
  const Fiber& fiber = Self().fiber;  // local memory is the thread's stack
  if (within(fiber.stack, fiber.bytes)) return AddressSpace::kLocal;
  if (within(this_machine->params, this_machine->kernel->param_bytes)) return AddressSpace::kParam;
  return IsConstant(reinterpret_cast<const void*>(address)) ? AddressSpace::kConst : AddressSpace::kGlobal;
}

}  // namespace host_cuda::ptx
