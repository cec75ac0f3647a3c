"""The faults of a GPU, of NCCL and of peers that e2e_cuda_faults_test.py injects: one row for each phase and kind.

A plan is in the language of tests/host_cuda/runtime/injection.h; its counts begin when the row begins, so the first
launch of a kernel is that of the row's request. What is owed:

  ends       the worker that it hits ends with the words in its log, the request with one error; a fresh worker is right
  dies       the same, but it was killed and says nothing
  recovers   nobody ends: the request has an error, or its answer; the next one is right on the same processes
"""
import dataclasses

OOM = "cudaErrorMemoryAllocation"
ECC = "cudaErrorECCUncorrectable"
LAUNCH = "cudaErrorLaunchFailure"


@dataclasses.dataclass(frozen=True)
class Fault:
    phase: str
    plan: str
    owed: str              # "ends", "dies", "recovers"
    words: tuple = ()      # in the log of whoever it hits
    asks: str = "greedy"   # see ASKED of the test
    warm: bool = False     # a request first, so that the step is recorded
    fresh: bool = False    # on a worker that has recorded nothing
    hits: int = 0          # which worker, in the order in which they start
    blocks: int = 200      # of a worker that does not start


# Of a worker that does not start. "ranks": with --tp 2.
STARTS = [
    Fault("opening the device", "cudaStreamCreateWithFlags:1=cudaErrorDevicesUnavailable", "ends",
          ("GPU 0: a stream: cudaErrorDevicesUnavailable",)),
    Fault("weights", f"cudaMalloc:1={OOM}", "ends", ("weights", OOM)),
    Fault("weights", f"copy:3={ECC}", "ends", ("weights to the GPU: " + ECC,)),
    Fault("weights", "copy:5=kill", "dies"),
    Fault("KV pool", f"cudaMalloc/10000000:1={OOM}", "ends", ("KV blocks: cannot have", OOM),
          blocks=8000),
    Fault("KV pool", "cudaStreamCreateWithFlags:2=cudaErrorLaunchFailure", "ends", ("a stream for KV: ", LAUNCH)),
    Fault("context", f"cudaHostAlloc:1={OOM}", "ends", (OOM,)),
    Fault("context", f"cudaHostAlloc:6={OOM}", "ends", (OOM,)),
]
RANKS_START = [
    Fault("weights of rank 1", f"cudaMalloc@1:3={OOM}", "ends", ("rank 1", "weights", OOM)),
    Fault("id of the communicator", "ncclGetUniqueId:1=ncclSystemError", "ends", ("an id for a communicator", "system error")),
    Fault("meeting, rank 0", "ncclCommInitRankConfig@0:1=ncclInternalError", "ends", ("a communicator", "internal error")),
    Fault("meeting, rank 1", "ncclCommInitRankConfig@1:1=ncclSystemError", "ends", ("rank 1", "system error")),
    Fault("meeting, rank 1 dies", "ncclCommInitRankConfig@1:1=kill", "ends", ("rank 1", "was killed")),
    Fault("first exchange", "ncclAllGather@1:1=ncclUnhandledCudaError", "ends", ("rank 1", "unhandled cuda error")),
    Fault("first exchange stalls", "operation@1:2=stall", "ends", ("waited 4s for the first exchange",)),
]

# Of a worker of both roles, in a request.
STEPS = [
    Fault("metadata of a prefill step", "cudaMemcpyAsync:1=cudaErrorInvalidValue", "ends",
          ("metadata of the step: cudaErrorInvalidValue",)),
    Fault("metadata of a prefill step", f"copy:1={ECC}", "ends", (ECC,)),
    Fault("prefill", "cudaLaunchKernel:1=cudaErrorLaunchOutOfResources", "ends",
          ("embedding: cudaErrorLaunchOutOfResources",)),
    Fault("prefill", f"launch/PrefillKernel:1={LAUNCH}", "ends", (LAUNCH,)),
    Fault("prefill", f"launch/GemmKernel:3={ECC}", "ends", (ECC, "nvidia-smi")),
    Fault("prefill", "launch/PrefillKernel:1=kill", "dies"),
    Fault("waiting for a step", "cudaStreamSynchronize:1=cudaErrorIllegalAddress", "ends",
          ("the step: cudaErrorIllegalAddress",)),
    Fault("copy on write", f"cudaMemcpy2DAsync:3={OOM}", "ends", ("copying KV blocks: " + OOM,), asks="choices"),
    Fault("recording", f"cudaStreamBeginCapture:1={OOM}", "ends", ("recording a step: " + OOM,), fresh=True),
    Fault("recording", "cudaStreamEndCapture:1=cudaErrorStreamCaptureInvalidated", "ends",
          ("recording a step: cudaErrorStreamCaptureInvalidated",), fresh=True),
    Fault("recording", f"cudaGraphInstantiate:1={OOM}", "ends", ("recording a step: " + OOM,), fresh=True),
    Fault("recording", "cudaGraphInstantiate:1=kill", "dies", fresh=True),
    Fault("replay", "cudaGraphLaunch:4=cudaErrorLaunchOutOfResources", "ends",
          ("a recorded step: cudaErrorLaunchOutOfResources",), warm=True),
    Fault("replay", f"launch/SpanKernel:5={LAUNCH}", "ends", ("the step: " + LAUNCH,), warm=True),
    Fault("replay", f"launch/MergeKernel:6={ECC}", "ends", ("the step: " + ECC,), warm=True),
    Fault("replay", "launch/RmsNormKernel:20=kill", "dies", warm=True),
    Fault("sampling", f"launch/ResultKernel:1={LAUNCH}", "ends", (LAUNCH,)),
    Fault("sampling", f"launch/CutKernel:2={ECC}", "ends", (ECC,), asks="sampled", warm=True),
    Fault("sampling", "launch/ResultKernel:3=kill", "dies"),
    Fault("logits to the host", f"cudaMemcpy2DAsync:1={OOM}", "ends", ("logits to the host: " + OOM,), asks="forked"),
]

# Between a prefill worker on device 0 and a decode worker on device 1.
HANDOVERS = [
    Fault("gather", f"cudaMemsetAsync@0:1={OOM}", "recovers", (OOM,)),
    Fault("gather", f"launch/Copy@0:1={ECC}", "ends", (ECC,)),
    Fault("gather", "launch/Copy@0:1=kill", "dies"),
    Fault("scatter", f"cudaMemsetAsync@1:1={OOM}", "recovers", (OOM,), hits=1),
    Fault("scatter", f"launch/Copy@1:1={LAUNCH}", "ends", (LAUNCH,), hits=1),
    Fault("scatter", "launch/Copy@1:1=kill", "dies", hits=1),
    Fault("prefill at P", f"launch/PrefillKernel@0:1={LAUNCH}", "ends", (LAUNCH,), fresh=True),
    Fault("decode at D", f"launch/SpanKernel@1:2={ECC}", "ends", (ECC,), hits=1),
]
# The same over NCCL.
PIPES = [
    Fault("sending", "ncclSend@0:1=ncclSystemError", "recovers", ("system error",)),
    Fault("sending", "operation@0:1=ncclRemoteError", "recovers", ("remote process",)),
    Fault("sending", "ncclSend@0:1=kill", "dies"),
    Fault("sending stalls", "operation@0:1=stall", "recovers", ("its bytes are lost",)),
    Fault("receiving", "ncclRecv@1:1=ncclInternalError", "recovers", ("internal error",), hits=1),
    Fault("receiving", "ncclRecv@1:1=kill", "dies", hits=1),
]
# While a fresh prefill worker meets the decode worker: the next attempt holds.
MEETINGS = [
    Fault("meeting", "ncclCommInitRankConfig@0:1=ncclSystemError", "recovers", ("a communicator", "system error")),
    Fault("meeting", "ncclCommInitRankConfig@1:1=ncclInternalError", "recovers", ("a communicator", "internal error"), hits=1),
    Fault("id", "ncclGetUniqueId@1:1=ncclSystemError", "recovers", ("an id for a communicator",), hits=1),
    Fault("meeting", f"cudaStreamCreateWithFlags@0:3={OOM}", "recovers", ("KV to a decode worker: " + OOM,)),
]

# Of a worker of two ranks on devices 0 and 1.
RANKS = [
    Fault("all-gather of a prefill step", "ncclAllGather@1:1=ncclSystemError", "ends", ("rank 1", "system error")),
    Fault("all-gather of a prefill step", "operation@0:2=ncclRemoteError", "ends", ("remote process",)),
    Fault("all-gather stalls", "operation@1:3=stall", "ends", ("stands still",)),
    Fault("all-gather, rank 1 dies", "ncclAllGather@1:2=kill", "ends", ("rank 1", "was killed")),
    Fault("all-gather, rank 0 dies", "ncclAllGather@0:2=kill", "dies"),
    Fault("recording at rank 1", f"cudaGraphInstantiate@1:1={OOM}", "ends", ("rank 1", OOM), fresh=True),
    Fault("replay at rank 1", f"launch/SpanKernel@1:3={ECC}", "ends", ("rank 1", ECC), warm=True),
    Fault("replay stalls", "operation@0:20=stall", "ends", ("stands still",), warm=True),
    Fault("logits to rank 0", "ncclSend@1:1=ncclSystemError", "ends", ("rank 1", "system error")),
]
# Of a prefill worker of two ranks, on devices 0 and 1, and a decode worker on device 2.
RANK_HANDOVERS = [
    Fault("gather at rank 1", f"launch/Copy@1:1={ECC}", "ends", ("rank 1", ECC)),
    Fault("gather at rank 1", f"cudaMemsetAsync@1:1={OOM}", "recovers", ("rank 1", OOM)),
    Fault("gather, rank 1 dies", "launch/Copy@1:1=kill", "ends", ("rank 1", "was killed")),
]
