// Device memory that another process of this host opens (CUDA-IPC), and opening it.
//
// A handle that this process made itself CUDA refuses to open: its maker is found by the handle's random name instead,
// so that two workers in one process, as tests have them, go the same way as two processes.
//
// Limits: CUDA leaves it undefined what becomes of an opened mapping when the maker frees the memory first; a maker
// keeps it until it knows that nobody writes any more (kvtransfer/device_rings.h). Both processes are of one user.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cuda/backend/device.h"
#include "kernels/device_links.h"

namespace sluice::kernels::cuda {

absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewSharedMemory(const Device& gpu, size_t bytes);
absl::StatusOr<std::unique_ptr<DeviceBuffer>> OpenSharedMemory(const Device& gpu, std::string_view handle);

}  // namespace sluice::kernels::cuda
