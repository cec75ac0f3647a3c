// A plugin of the CUDA backend's kind, loaded with dlopen: on the test runtime, which it shares with this program and
// with the fakes that it opens by their real names; and as it is built for GPUs.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/host_cuda/plugin/sample_plugin.h"
#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Plugin {
 public:
  explicit Plugin(const std::string& name)
      : handle_(dlopen((SAMPLE_PLUGIN_FOLDER "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }

  template <class Function>
  Function* Get(const char* symbol) const {
    return reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }

  // Empty: done.
  std::string Run(int replays, std::array<float, kSampleCount>* result) const {
    char why[256] = "";
    Get<SampleRun>("sample_run")(replays, result->data(), why, sizeof why);
    return why;
  }

  bool open() const { return handle_ != nullptr; }

 private:
  void* handle_;
};

const Plugin& OnTheTestRuntime() {
  static const Plugin plugin("host_cuda_sample_plugin_host.so");
  return plugin;
}

float Expected(int devices, int replays, int i) {
  float sum = 0;
  for (int device = 0; device < devices; ++device) sum += 3 * (2 * static_cast<float>(i + device) + 1);
  return sum * static_cast<float>(replays);
}

class PluginTest : public HostCudaTest {};

TEST_F(PluginTest, KernelsAGemmAndAnAllReduceInAGraphInEveryOrder) {
  for (int devices : {1, 2}) {
    for (int seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(std::to_string(devices) + " devices, seed " + std::to_string(seed));
      Fresh({{"HOST_CUDA_DEVICES", std::to_string(devices)}, {"HOST_CUDA_SEED", std::to_string(seed)}});
      std::array<float, kSampleCount> result = {};
      ASSERT_EQ(OnTheTestRuntime().Run(/*replays=*/5, &result), "");
      for (int i = 0; i < kSampleCount; ++i) {
        EXPECT_EQ(result[static_cast<size_t>(i)], Expected(devices, 5, i)) << i;
      }
      EXPECT_THAT(TakeReports(), IsEmpty());
    }
  }
}

TEST_F(PluginTest, ItsKernelRunsOnAStreamAndMemoryOfTheProgram) {
  cudaStream_t stream = Stream();
  float* p = Device<float>(100);
  ASSERT_EQ(cudaMemsetAsync(p, 0, 400, stream), cudaSuccess);
  const auto add_one = OnTheTestRuntime().Get<SampleAddOne>("sample_add_one");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(add_one(p, 100, stream), cudaSuccess);
  std::array<float, 100> seen;
  ASSERT_EQ(cudaMemcpyAsync(seen.data(), p, sizeof seen, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(seen[99], 3.f);
}

// One runtime: what this program asks of it holds in the plugin and in what that has opened.
TEST_F(PluginTest, FailuresOnPurposeReachTheLibrariesItOpens) {
  std::array<float, kSampleCount> result;
  for (const auto& [fail, said] : {std::pair{"ncclAllReduce:1=ncclSystemError", "ncclAllReduce: 2"},
                                   std::pair{"cublasLtMatmul:1=CUBLAS_STATUS_NOT_SUPPORTED", "cublasLtMatmul: 15"},
                                   std::pair{"cudaMalloc:4=cudaErrorMemoryAllocation", "cudaErrorMemoryAllocation"},
                                   std::pair{"launch:3=cudaErrorLaunchFailure", "cudaErrorLaunchFailure"}}) {
    Fresh({{"HOST_CUDA_FAIL", fail}});
    EXPECT_THAT(OnTheTestRuntime().Run(2, &result), HasSubstr(said)) << fail;
  }
  Fresh({{"HOST_CUDA_DEVICES", "0"}});
  EXPECT_THAT(OnTheTestRuntime().Run(2, &result), StartsWith("no CUDA device"));
}

TEST_F(PluginTest, TheFakesLieUnderTheirRealNamesAndShowNothingElse) {
  for (const auto& [library, symbol, foreign] :
       {std::tuple{"libcublasLt.so.13", "cublasLtMatmul", "cublasCreate_v2"},
        std::tuple{"libcublas.so.13", "cublasGemmEx", "cublasLtMatmul"},
        std::tuple{"libnccl.so.2", "ncclCommInitRankConfig", "cublasLtMatmul"}}) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    void* found = dlsym(handle, symbol);
    ASSERT_NE(found, nullptr) << symbol;
    Dl_info where;
    ASSERT_NE(dladdr(found, &where), 0);
    EXPECT_THAT(where.dli_fname, StartsWith(HOST_CUDA_LIBRARIES));
    EXPECT_EQ(dlsym(handle, foreign), nullptr) << library << " " << foreign;
  }
}

TEST_F(PluginTest, ThePluginShowsOnlyItsInterface) {
  for (const char* name : {"host_cuda_sample_plugin_host.so", "host_cuda_sample_plugin.so"}) {
    if (!SAMPLE_PLUGIN_FOR_DEVICES && name != std::string("host_cuda_sample_plugin_host.so")) continue;
    const std::string command = std::string("nm -D --defined-only " SAMPLE_PLUGIN_FOLDER "/") + name;
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char line[512];
    int seen = 0;
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
      const std::string text = line;
      EXPECT_THAT(text, testing::AnyOf(HasSubstr(" T sample_"), testing::ContainsRegex("_ZZ?N?K?St")));
      seen += text.find(" T sample_") != std::string::npos;
    }
    EXPECT_EQ(pclose(pipe), 0);
    EXPECT_EQ(seen, 3) << name;
  }
}

// As it goes to GPUs. With one it does the same there; without, it loads and says so.
TEST_F(PluginTest, ForDevices) {
  if (!SAMPLE_PLUGIN_FOR_DEVICES) GTEST_SKIP() << "not built";
  const Plugin plugin("host_cuda_sample_plugin.so");
  ASSERT_TRUE(plugin.open());
  char why[256] = "";
  const int devices = plugin.Get<SampleDevices>("sample_devices")(why, sizeof why);
  if (devices < 0) {
    EXPECT_THAT(std::string(why), StartsWith("no CUDA device: "));
    GTEST_SKIP() << why;
  }
  // What it would open by name in this process are the fakes.
}

// The architectures in the fat binaries of a file, as cuobjdump --list-elf shows them, which not every toolkit brings.
std::set<uint32_t> Architectures(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto number = [&](size_t at, size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  std::set<uint32_t> found;
  const std::string magic = "\x50\xed\x55\xba";
  for (size_t at = bytes.find(magic); at != std::string::npos; at = bytes.find(magic, at + 4)) {
    const size_t header = number(at + 6, 2), end = at + header + number(at + 8, 8);
    for (size_t entry = at + header; entry + 32 <= std::min(end, bytes.size());
         entry += number(entry + 4, 4) + number(entry + 8, 8)) {
      if (number(entry, 2) == 2) found.insert(static_cast<uint32_t>(number(entry + 28, 4)));  // 2: machine code
    }
  }
  return found;
}

TEST_F(PluginTest, HasDeviceCodeForEveryArchitecture) {
  if (!SAMPLE_PLUGIN_FOR_DEVICES) GTEST_SKIP() << "not built";
  EXPECT_EQ(Architectures(SAMPLE_PLUGIN_FOLDER "/host_cuda_sample_plugin.so"), (std::set<uint32_t>{80, 90, 100}));
  EXPECT_EQ(Architectures(SAMPLE_PLUGIN_FOLDER "/host_cuda_sample_plugin_host.so"), std::set<uint32_t>{});  // PTX alone
}

}  // namespace
}  // namespace host_cuda
