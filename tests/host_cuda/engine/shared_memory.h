// The shared memory of the block that runs, below 4 GiB, as PTX holds its addresses in 32 bits. Every variable lies
// between redzones. An overrun is found twice: by ASan at the access (the redzones are poisoned), and without ASan at
// the block's end (a write left its mark). Fresh variables are full of 0xff: NaN in every floating-point type, a wild
// index as an integer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda {

class SharedMemory {
 public:
  static constexpr size_t kRedzone = 64;  // at least, before the first, between two, and behind the last

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Lays the variables of one grid out.
  void Arrange(const std::vector<SharedVariable>& variables, size_t dynamic_bytes);
  void Fresh();
  // Empty: nobody wrote beside a variable. Otherwise where.
  std::string Trespass() const;
  void Close();  // nothing is accessible

  uint64_t base() const { return reinterpret_cast<uint64_t>(arena_); }
  uint64_t end() const { return base() + used_; }
  uint64_t dynamic() const { return base() + dynamic_; }

 private:
  char* arena_ = nullptr;
  size_t used_ = 0, dynamic_ = 0;
  std::vector<SharedVariable> variables_;  // the dynamic one last
};

}  // namespace host_cuda
