// The order of works: what streams, events and the default stream promise holds, what they don't is broken by most
// seeds.
#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "tests/host_cuda/runtime/device_work.h"
#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda {
namespace {

constexpr int kSeeds = 50;

std::map<std::string, std::string> Seed(int seed) {
  return {{"HOST_CUDA_SEED", std::to_string(seed)}};
}

class StreamTest : public HostCudaTest {
 protected:
  // A producer of a few works and one consumer on two streams; what the consumer saw.
  int Consumed(bool wait) {
    cudaStream_t producer = Stream(), consumer = Stream();
    cudaEvent_t done = Event();
    int* p = Device(1);
    int* seen = Pinned(1);
    EXPECT_EQ(cudaMemsetAsync(p, 0, sizeof *p, producer), cudaSuccess);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(StepKernel::Launch(p, 10, i + 1, producer), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(done, producer), cudaSuccess);
    if (wait) {
      EXPECT_EQ(cudaStreamWaitEvent(consumer, done, 0), cudaSuccess);
    }
    EXPECT_EQ(cudaMemcpyAsync(seen, p, sizeof *p, cudaMemcpyDeviceToHost, consumer), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(consumer), cudaSuccess);
    return *seen;
  }
};

TEST_F(StreamTest, AMissingEventWaitIsWrongInMostSeeds) {
  int wrong = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Fresh(Seed(seed));
    wrong += Consumed(/*wait=*/false) != 123;
  }
  std::printf("missing event wait: wrong in %d of %d seeds\n", wrong, kSeeds);
  EXPECT_GT(wrong, kSeeds / 2);
}

TEST_F(StreamTest, AnEventWaitIsRightInEverySeed) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Fresh(Seed(seed));
    EXPECT_EQ(Consumed(/*wait=*/true), 123) << "seed " << seed;
  }
}

TEST_F(StreamTest, StreamsInterleaveDifferentlyWithTheSeedAndEquallyWithTheSame) {
  std::set<int> outcomes;
  for (int seed = 0; seed < kSeeds; ++seed) {
    int outcome[2];
    for (int& value : outcome) {
      Fresh(Seed(seed));
      cudaStream_t a = Stream(), b = Stream();
      int* p = Device(1);
      ASSERT_EQ(cudaMemset(p, 0, sizeof *p), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      for (int i = 0; i < 3; ++i) {
        StepKernel::Launch(p, 3, 1, a);
        StepKernel::Launch(p, 3, 2, b);
      }
      value = Value(p);
    }
    EXPECT_EQ(outcome[0], outcome[1]) << "seed " << seed;
    outcomes.insert(outcome[0]);
  }
  EXPECT_GT(outcomes.size(), 6u);
}

TEST_F(StreamTest, TheDefaultStreamOrdersBlockingStreamsAndNoOthers) {
  int other_order = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    for (unsigned flags : {unsigned{cudaStreamDefault}, unsigned{cudaStreamNonBlocking}}) {
      Fresh(Seed(seed));
      cudaStream_t a = Stream(flags), b = Stream(flags);
      int* p = Device(1);
      ASSERT_EQ(cudaMemset(p, 0, sizeof *p), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      StepKernel::Launch(p, 10, 1, a);
      StepKernel::Launch(p, 10, 2, nullptr);
      StepKernel::Launch(p, 10, 3, b);
      const int value = Value(p);
      if (flags == cudaStreamDefault) {
        EXPECT_EQ(value, 123) << "seed " << seed;
      } else {
        other_order += value != 123;
      }
    }
  }
  EXPECT_GT(other_order, kSeeds / 2);
}

TEST_F(StreamTest, ResultsAreNotThereBeforeTheHostWaits) {
  cudaStream_t s = Stream();
  int* p = Device(1);
  int* seen = Pinned(1);
  *seen = 5;
  cudaMemsetAsync(p, 0, sizeof *p, s);
  cudaMemcpyAsync(seen, p, sizeof *p, cudaMemcpyDeviceToHost, s);
  EXPECT_EQ(*seen, 5);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // not ready is no error
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(*seen, 0);
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
}

TEST_F(StreamTest, TheDeviceGoesOnAloneInTheEnd) {
  Fresh({{"HOST_CUDA_LATE_US", "300"}});
  cudaStream_t s = Stream();
  std::atomic<int> ran{0};
  ASSERT_EQ(Enqueue(s, Repeatable("count", DeviceWork::Kind::kOther, [&] { ++ran; })), cudaSuccess);
  for (int i = 0; i < 10000 && ran == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran, 1);
}

TEST_F(StreamTest, WorkThatWaitsForTheOutsideStopsOnlyItsStream) {
  cudaStream_t a = Stream(), b = Stream();
  std::atomic<bool> open{false};
  DeviceWork gate;
  gate.name = "gate";
  gate.step = [&] { return open.load(); };
  ASSERT_EQ(Enqueue(a, gate), cudaSuccess);
  int* p = Device(1);
  cudaMemsetAsync(p, 0, sizeof *p, b);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  open = true;
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
}

TEST_F(StreamTest, AnEventIsWhereItWasRecordedLast) {
  cudaStream_t a = Stream();
  cudaEvent_t event = Event();
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);  // never recorded
  std::atomic<bool> open{false};
  DeviceWork gate;
  gate.name = "gate";
  gate.step = [&] { return open.load(); };
  cudaEventRecord(event, a);
  Enqueue(a, gate);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  cudaEventRecord(event, a);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  open = true;
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST_F(StreamTest, ElapsedTimeNeedsTimedAndReachedEvents) {
  cudaStream_t s = Stream();
  cudaEvent_t start = Event(cudaEventDefault), end = Event(cudaEventDefault), untimed = Event();
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  cudaEventRecord(start, s);
  cudaEventRecord(end, s);
  cudaEventRecord(untimed, s);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  cudaStreamSynchronize(s);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 0);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
}

// Their values mean nothing; that they grow does.
TEST_F(StreamTest, TimesOfEventsGrowAlongAStream) {
  cudaStream_t s = Stream();
  std::vector<cudaEvent_t> events(10);
  int* p = Device(1);
  for (cudaEvent_t& event : events) {
    event = Event(cudaEventDefault);
    cudaMemsetAsync(p, 0, sizeof *p, s);
    ASSERT_EQ(cudaEventRecord(event, s), cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  float before = 0;
  for (cudaEvent_t event : events) {
    float ms = -1;
    ASSERT_EQ(cudaEventElapsedTime(&ms, events[0], event), cudaSuccess);
    EXPECT_GE(ms, before);
    before = ms;
  }
}

TEST_F(StreamTest, PrioritiesAreKeptWithinTheirRange) {
  int least = -1, greatest = 1;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_GT(least, greatest);
  for (const auto& [asked, kept] : {std::pair{greatest, greatest}, {greatest - 7, greatest}, {least + 7, least}}) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, asked), cudaSuccess);
    int priority = 99;
    ASSERT_EQ(cudaStreamGetPriority(stream, &priority), cudaSuccess);
    EXPECT_EQ(priority, kept);
  }
}

TEST_F(StreamTest, ACallbackRunsInItsPlaceAndMustNotCallCuda) {
  cudaStream_t s = Stream();
  struct Seen {
    int* p;
    int value = 0;
    cudaError_t error = cudaSuccess;
  } seen;
  seen.p = Pinned(1);
  int* p = Device(1);
  cudaMemsetAsync(p, 0, sizeof *p, s);
  StepKernel::Launch(p, 1, 7, s);
  cudaMemcpyAsync(seen.p, p, sizeof *p, cudaMemcpyDeviceToHost, s);
  auto callback = [](void* data) {
    auto* mine = static_cast<Seen*>(data);
    mine->value = *mine->p;
    mine->error = cudaStreamSynchronize(nullptr);
  };
  ASSERT_EQ(cudaLaunchHostFunc(s, callback, &seen), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(seen.value, 7);
  EXPECT_EQ(seen.error, cudaErrorNotPermitted);
  EXPECT_THAT(TakeReports(), testing::Contains(testing::HasSubstr("cudaStreamSynchronize was called in a callback")));
}

TEST_F(StreamTest, ADestroyedStreamStillRuns) {
  cudaStream_t s = Stream();
  int* p = Device(1);
  cudaMemsetAsync(p, 0, sizeof *p, s);
  StepKernel::Launch(p, 1, 9, s);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(Value(p), 9);
}

TEST_F(StreamTest, SeveralDevicesWaitForOneAnother) {
  Fresh({{"HOST_CUDA_DEVICES", "2"}});
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaStream_t first = Stream();
  int* p = Device(1);
  cudaEvent_t event = Event();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t second = Stream();
  int* q = Device(1);
  cudaMemsetAsync(p, 0, sizeof *p, first);
  StepKernel::Launch(p, 1, 4, first);
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(second, event, 0);
  ASSERT_EQ(cudaMemcpyPeerAsync(q, 1, p, 0, sizeof *p, second), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(Value(q), 4);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
}

}  // namespace
}  // namespace host_cuda
