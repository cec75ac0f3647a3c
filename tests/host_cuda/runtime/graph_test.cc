#include <atomic>
#include <set>
#include <thread>

#include "tests/host_cuda/runtime/device_work.h"
#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;

class GraphTest : public HostCudaTest {
 protected:
  void SetUp() override {
    HostCudaTest::SetUp();
    Prepare();
  }

  void Prepare() {
    main_ = Stream();
    side_ = Stream();
    fork_ = Event();
    join_ = Event();
    p_ = Device(2);
    cudaMemset(p_, 0, 8);
    cudaDeviceSynchronize();
  }

  cudaGraphExec_t Instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    return exec;
  }

  // 1 on the main stream, then 2 and 3 (on two streams), then, if joined, 4.
  cudaGraph_t Fork(bool ordered) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal), cudaSuccess);
    StepKernel::Launch(p_, 10, 1, main_);
    cudaEventRecord(fork_, main_);
    cudaStreamWaitEvent(side_, fork_, 0);
    StepKernel::Launch(p_, 10, 2, side_);
    cudaEventRecord(join_, side_);
    if (ordered) cudaStreamWaitEvent(main_, join_, 0);
    StepKernel::Launch(p_, 10, 3, main_);
    if (!ordered) cudaStreamWaitEvent(main_, join_, 0);
    StepKernel::Launch(p_, 10, 4, main_);
    EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
    return graph;
  }

  cudaStream_t main_ = nullptr, side_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  int* p_ = nullptr;
};

TEST_F(GraphTest, CapturedWorkRunsOnlyWhenLaunchedAndInTheOrderOfItsEdges) {
  cudaGraph_t graph = Fork(/*ordered=*/true);
  EXPECT_EQ(Value(p_), 0);
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 4u);
  cudaGraphExec_t exec = Instantiate(graph);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (int i = 0; i < 20; ++i) {
    cudaMemsetAsync(p_, 0, 4, main_);
    ASSERT_EQ(cudaGraphLaunch(exec, main_), cudaSuccess);
    EXPECT_EQ(Value(p_), 1234);
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, main_), cudaErrorInvalidValue);
}

TEST_F(GraphTest, WhatNoEdgeOrdersRunsInAnyOrder) {
  cudaGraphExec_t exec = Instantiate(Fork(/*ordered=*/false));
  std::set<int> seen;
  for (int i = 0; i < 30; ++i) {
    cudaMemsetAsync(p_, 0, 4, main_);
    cudaGraphLaunch(exec, main_);
    seen.insert(Value(p_));
  }
  EXPECT_EQ(seen, (std::set<int>{1234, 1324}));
}

TEST_F(GraphTest, CopiesReadTheirSourceAtEachReplay) {
  int* pinned = Pinned(1);
  int pageable = 1;
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaMemcpyAsync(p_, pinned, 4, cudaMemcpyHostToDevice, main_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(p_ + 1, &pageable, 4, cudaMemcpyHostToDevice, main_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
  cudaGraphExec_t exec = Instantiate(graph);
  for (int i = 5; i < 8; ++i) {
    *pinned = i;
    pageable = 10 * i;
    cudaGraphLaunch(exec, main_);
    EXPECT_EQ(Value(p_), i);
    EXPECT_EQ(Value(p_ + 1), 10 * i);
  }
}

TEST_F(GraphTest, LaunchesOfOneGraphFollowOneAnotherAcrossStreams) {
  cudaGraphExec_t exec = Instantiate(Fork(/*ordered=*/true));
  cudaGraphLaunch(exec, main_);
  cudaGraphLaunch(exec, side_);
  EXPECT_EQ(Value(p_), 12341234);
}

TEST_F(GraphTest, AForbiddenCallEndsTheCaptureAndIsNamed) {
  const std::vector<std::pair<std::string, std::function<cudaError_t()>>> calls = {
      {"cudaMalloc",
       [] {
         void* p;
         return cudaMalloc(&p, 4);
       }},
      {"cudaFree", [this] { return cudaFree(p_); }},
      {"cudaMallocAsync",
       [this] {
         void* p;
         return cudaMallocAsync(&p, 4, main_);
       }},
      {"cudaHostAlloc",
       [] {
         void* p;
         return cudaHostAlloc(&p, 4, 0);
       }},
      {"cudaMemcpy",
       [this] {
         int x = 0;
         return cudaMemcpy(p_, &x, 4, cudaMemcpyHostToDevice);
       }},
      {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
      {"cudaStreamSynchronize", [this] { return cudaStreamSynchronize(main_); }},
      {"cudaStreamQuery", [this] { return cudaStreamQuery(main_); }},
      {"cudaEventQuery", [this] { return cudaEventQuery(fork_); }},
      {"cudaEventSynchronize", [this] { return cudaEventSynchronize(fork_); }},
  };
  for (const auto& [name, call] : calls) {
    TakeReports();
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal), cudaSuccess);
    StepKernel::Launch(p_, 1, 1, main_);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << name;
    EXPECT_EQ(StepKernel::Launch(p_, 1, 1, main_), cudaErrorStreamCaptureInvalidated) << name;
    EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated) << name;
    EXPECT_EQ(graph, nullptr);
    EXPECT_THAT(TakeReports(), Contains(HasSubstr(name))) << name;
    EXPECT_EQ(cudaStreamSynchronize(main_), cudaSuccess);  // the stream is as before
  }
}

TEST_F(GraphTest, TheModeSaysWhoseCallsAreForbidden) {
  struct Case {
    cudaStreamCaptureMode mode;
    cudaError_t own, others;
  };
  for (const Case& c :
       {Case{cudaStreamCaptureModeGlobal, cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureUnsupported},
        Case{cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported, cudaSuccess},
        Case{cudaStreamCaptureModeRelaxed, cudaSuccess, cudaSuccess}}) {
    void* p = nullptr;
    cudaGraph_t graph = nullptr;
    cudaError_t others = cudaErrorUnknown;
    cudaStreamBeginCapture(main_, c.mode);
    std::thread([&] { others = cudaMalloc(&p, 4); }).join();
    EXPECT_EQ(others, c.others) << c.mode;
    cudaStreamEndCapture(main_, &graph);
    cudaStreamBeginCapture(main_, c.mode);
    EXPECT_EQ(cudaMalloc(&p, 4), c.own) << c.mode;
    EXPECT_EQ(cudaStreamEndCapture(main_, &graph),
              c.own == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(GraphTest, ForksMustBeJoined) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  StepKernel::Launch(p_, 1, 1, main_);
  cudaEventRecord(fork_, main_);
  cudaStreamWaitEvent(side_, fork_, 0);
  StepKernel::Launch(p_, 1, 1, side_);
  EXPECT_EQ(cudaStreamEndCapture(side_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("was not joined back")));
  EXPECT_EQ(cudaStreamWaitEvent(side_, fork_, 0), cudaErrorCapturedEvent);
}

TEST_F(GraphTest, EventsDoNotCrossTheBorderOfACapture) {
  cudaGraph_t graph = nullptr;
  cudaEventRecord(fork_, side_);
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaStreamWaitEvent(main_, fork_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphTest, TheDefaultStreamIsForbiddenWhileABlockingStreamCaptures) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  cudaStream_t blocking = Stream(cudaStreamDefault);
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("Step went to the default stream")));
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);  // non-blocking
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
}

TEST_F(GraphTest, WorkThatCanNotBeCapturedSaysSo) {
  DeviceWork once;
  once.name = "once";
  once.step = [] { return true; };
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(Enqueue(main_, once), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("once can't be captured")));
}

TEST_F(GraphTest, AnUpdateKeepsTheShape) {
  auto capture = [&](int plus, bool copy) {
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
    StepKernel::Launch(p_, 10, plus, main_);
    if (copy) {
      cudaMemsetAsync(p_, 0, 4, main_);
    } else {
      StepKernel::Launch(p_, 10, plus, main_);
    }
    EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
    return graph;
  };
  cudaGraphExec_t exec = Instantiate(capture(1, false));
  cudaGraphExecUpdateResultInfo info;
  cudaGraphLaunch(exec, main_);  // keeps what it was launched with
  ASSERT_EQ(cudaGraphExecUpdate(exec, capture(2, false), &info), cudaSuccess);
  cudaGraphLaunch(exec, main_);
  EXPECT_EQ(Value(p_), 1122);
  EXPECT_EQ(cudaGraphExecUpdate(exec, capture(2, true), &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("node 1, Step, becomes cudaMemsetAsync")));
}

TEST_F(GraphTest, ACopyWhoseSourceChangesAfterTheLaunchIsNamed) {
  int* pinned = Pinned(1);
  int pageable = 3;
  *pinned = 3;
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  cudaMemcpyAsync(p_, pinned, 4, cudaMemcpyHostToDevice, main_);
  cudaMemcpyAsync(p_ + 1, &pageable, 4, cudaMemcpyHostToDevice, main_);
  ASSERT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
  cudaGraphExec_t exec = Instantiate(graph);
  cudaGraphLaunch(exec, main_);
  EXPECT_EQ(Value(p_), 3);
  *pinned = 4;  // between two launches: fine
  EXPECT_THAT(TakeReports(), testing::IsEmpty());
  cudaGraphLaunch(exec, main_);
  *pinned = 5;
  pageable = 5;
  EXPECT_EQ(Value(p_), 5);
  EXPECT_THAT(TakeReports(),
              testing::UnorderedElementsAre(HasSubstr("of 4 bytes from pinned memory #2"),
                                            HasSubstr("of 4 bytes from pageable memory, which the host")));
}

TEST_F(GraphTest, ACaptureMayAddToAGraph) {
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCaptureToGraph(main_, graph, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal), cudaSuccess);
  StepKernel::Launch(p_, 10, 1, main_);
  cudaGraph_t same = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(main_, &same), cudaSuccess);
  EXPECT_EQ(same, graph);
  cudaGraphNode_t nodes[3];
  size_t count = 3;
  ASSERT_EQ(cudaGraphGetNodes(graph, nodes, &count), cudaSuccess);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(nodes[1], nullptr);
  // One that follows the first node and one that follows nothing.
  ASSERT_EQ(cudaStreamBeginCaptureToGraph(main_, graph, nodes, nullptr, 1, cudaStreamCaptureModeGlobal), cudaSuccess);
  StepKernel::Launch(p_, 10, 2, main_);
  ASSERT_EQ(cudaStreamEndCapture(main_, &same), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCaptureToGraph(side_, graph, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal), cudaSuccess);
  StepKernel::Launch(p_, 10, 3, side_);
  ASSERT_EQ(cudaStreamEndCapture(side_, &same), cudaSuccess);
  cudaGraphExec_t exec = Instantiate(graph);
  std::set<int> seen;
  for (int i = 0; i < 60; ++i) {
    cudaMemsetAsync(p_, 0, 4, main_);
    cudaGraphLaunch(exec, main_);
    seen.insert(Value(p_));
  }
  EXPECT_EQ(seen, (std::set<int>{123, 132, 312}));
  const cudaGraphNode_t foreign = reinterpret_cast<cudaGraphNode_t>(this);
  EXPECT_EQ(cudaStreamBeginCaptureToGraph(main_, graph, &foreign, nullptr, 1, cudaStreamCaptureModeGlobal),
            cudaErrorInvalidValue);
}

TEST_F(GraphTest, OneKernelOfAnInstanceMayBeChanged) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  cudaMemsetAsync(p_ + 1, 0, 4, main_);
  StepKernel::Launch(p_, 10, 1, main_);
  ASSERT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
  cudaGraphNode_t nodes[2];
  size_t count = 2;
  ASSERT_EQ(cudaGraphGetNodes(graph, nodes, &count), cudaSuccess);
  cudaGraphNodeType type;
  ASSERT_EQ(cudaGraphNodeGetType(nodes[0], &type), cudaSuccess);
  EXPECT_EQ(type, cudaGraphNodeTypeMemset);
  ASSERT_EQ(cudaGraphNodeGetType(nodes[1], &type), cudaSuccess);
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  cudaGraphExec_t exec = Instantiate(graph), other = Instantiate(graph);
  int times = 10, plus = 7;
  void* args[] = {&p_, &times, &plus};
  cudaKernelNodeParams params = {};
  params.func = const_cast<void*>(StepKernel::Host());
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = args;
  EXPECT_EQ(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &params), cudaErrorInvalidValue);
  cudaGraphLaunch(exec, main_);  // keeps what it was launched with
  ASSERT_EQ(cudaGraphExecKernelNodeSetParams(exec, nodes[1], &params), cudaSuccess);
  cudaGraphLaunch(exec, main_);
  cudaGraphLaunch(other, main_);
  EXPECT_EQ(Value(p_), 171);
  params.sharedMemBytes = 60 << 10;
  EXPECT_EQ(cudaGraphExecKernelNodeSetParams(exec, nodes[1], &params), cudaErrorInvalidValue);
  cudaGraphExecUpdateResultInfo info;  // the nodes' handles still mean the same
  ASSERT_EQ(cudaGraphExecUpdate(exec, graph, &info), cudaSuccess);
  params.sharedMemBytes = 0;
  EXPECT_EQ(cudaGraphExecKernelNodeSetParams(exec, nodes[1], &params), cudaSuccess);
}

TEST_F(GraphTest, ExternalEventsAreRefused) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaEventRecordWithFlags(fork_, main_, cudaEventRecordExternal), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated);
  cudaEventRecord(fork_, side_);
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaStreamWaitEvent(main_, fork_, cudaEventWaitExternal), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cudaStreamWaitEvent: external events in graphs: not in")));
}

TEST_F(GraphTest, CallbacksInAGraph) {
  cudaGraph_t graph = nullptr;
  std::atomic<int> calls{0};
  cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal);
  ASSERT_EQ(cudaLaunchHostFunc(
                main_, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls),
            cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
  cudaGraphExec_t exec = Instantiate(graph);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, main_);
  EXPECT_EQ(cudaStreamSynchronize(main_), cudaSuccess);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace host_cuda
