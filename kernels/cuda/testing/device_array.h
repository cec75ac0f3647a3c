// What tests of kernels need of a device: arrays that free themselves, with a guard behind them, and bf16 on the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::kernels::cuda {

// Without a device a test is skipped; on the test runtime there is always one.
inline bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

#define SLUICE_NEEDS_DEVICE() \
  if (!sluice::kernels::cuda::HasDevice()) GTEST_SKIP() << "no CUDA device"

inline void Check(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) { Check(cudaMalloc(reinterpret_cast<void**>(&data_), Bytes() + 16)); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    Check(cudaMemcpy(data_, values.data(), Bytes(), cudaMemcpyHostToDevice));
    Check(cudaStreamSynchronize(nullptr));  // the copy may return before it has arrived, and not every stream waits for it
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() { return data_; }
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    Check(cudaDeviceSynchronize());
    Check(cudaMemcpy(values.data(), data_, Bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t Bytes() const { return size_ * sizeof(T); }

  size_t size_;
  T* data_ = nullptr;
};

// Seeded numbers around 0, of a spread of about one, as bf16 or float.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : rng_(seed) {}
  float Next(float spread = 1) { return spread * std::normal_distribution<float>()(rng_); }
  std::vector<__nv_bfloat16> Bf16(size_t count, float spread = 1) {
    std::vector<__nv_bfloat16> values(count);
    for (auto& value : values) value = __float2bfloat16_rn(Next(spread));
    return values;
  }
  std::vector<float> Floats(size_t count, float spread = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = Next(spread);
    return values;
  }
  int Below(int n) { return int(rng_() % uint64_t(n)); }

 private:
  std::mt19937_64 rng_;
};

inline double ToDouble(float value) {
  return value;
}
inline double ToDouble(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// The largest |got - want| / (|want| + floor); infinite where one of them is no number. NaN never passes a comparison.
template <typename T>
double WorstError(const std::vector<T>& got, const std::vector<double>& want, double floor) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(ToDouble(got[i]) - want[i]) / (std::abs(want[i]) + floor);
    worst = error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

// Equal bits.
template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace sluice::kernels::cuda
