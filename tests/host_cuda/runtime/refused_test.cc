// What isn't here says so by name; a call that silently did nothing would be worse than none.
#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RefusedTest : public HostCudaTest {};

TEST_F(RefusedTest, EachByItsName) {
  int n = 0;
  void* p = &n;
  const cudaMemLocation here = {};
  const cudaLaunchConfig_t config = {};
  cudaMemPool_t pool = nullptr;
  EXPECT_EQ(cudaLaunchCooperativeKernel(StepKernel::Host(), dim3(1), dim3(1), nullptr, 0, nullptr),
            cudaErrorNotSupported);
  EXPECT_EQ(cudaOccupancyMaxActiveClusters(&n, StepKernel::Host(), &config), cudaErrorNotSupported);
  EXPECT_EQ(cudaOccupancyMaxPotentialClusterSize(&n, StepKernel::Host(), &config), cudaErrorNotSupported);
  EXPECT_EQ(cudaMallocManaged(&p, 4, cudaMemAttachGlobal), cudaErrorNotSupported);
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(cudaMemPrefetchAsync(&n, 4, here, 0, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(cudaMemAdvise(&n, 4, cudaMemAdviseSetReadMostly, here), cudaErrorNotSupported);
  EXPECT_EQ(cudaMemPoolCreate(&pool, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
  EXPECT_THAT(
      TakeReports(),
      ElementsAre(HasSubstr("cudaLaunchCooperativeKernel: blocks run one after the other here"),
                  HasSubstr("cudaOccupancyMaxActiveClusters: "), HasSubstr("cudaOccupancyMaxPotentialClusterSize: "),
                  HasSubstr("cudaMallocManaged: managed memory"), HasSubstr("cudaMemPrefetchAsync: "),
                  HasSubstr("cudaMemAdvise: "), HasSubstr("cudaMemPoolCreate: pools beside the default one")));
}

TEST_F(RefusedTest, WhoAsksFirstIsToldToo) {
  for (const cudaDeviceAttr attribute :
       {cudaDevAttrCooperativeLaunch, cudaDevAttrClusterLaunch, cudaDevAttrManagedMemory}) {
    int value = 1;
    ASSERT_EQ(cudaDeviceGetAttribute(&value, attribute, 0), cudaSuccess);
    EXPECT_EQ(value, 0) << attribute;
  }
}

TEST_F(RefusedTest, FunctionsOfTheDriverAreNotThere) {
  void* function = this;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function, 13000, cudaEnableDefault, &found),
            cudaSuccess);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
  EXPECT_THAT(TakeReports(), ElementsAre(HasSubstr("the driver's function cuStreamWriteValue32 is not in")));
}

TEST_F(RefusedTest, LimitsOfADevice) {
  size_t value = 0;
  ASSERT_EQ(cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize), cudaSuccess);
  EXPECT_EQ(value, size_t{1} << 20);
  ASSERT_EQ(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 16), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize), cudaSuccess);
  EXPECT_EQ(value, size_t{1} << 16);
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1), cudaErrorUnsupportedLimit);
  EXPECT_THAT(TakeReports(), ElementsAre(HasSubstr("cudaDeviceSetLimit: limit 6 is not in the test runtime")));
}

}  // namespace
}  // namespace host_cuda
