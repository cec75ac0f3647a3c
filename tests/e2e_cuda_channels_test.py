"""KV between workers with GPUs, on the test runtime (tests/host_cuda): over every channel the tokens are those of one worker,
to the bit, and the bytes went that way.

Each worker has a device of its own, as NCCL wants it.
"""
import contextlib
import os
import signal
import unittest

import grpc

from cluster import BUILD, NO_MOVES, Cluster, Server, wait_until
from sluice_client import Background

PLUGIN = BUILD / "backend_cuda_host.so"
DEVICES = 4
PREFILL, DECODE = 1, 2  # roles in proto/serving.proto
CUDA = ["--backend", "cuda", "--cuda-plugin", str(PLUGIN), "--kv-blocks", "200"]
GREEDY = {"max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
# Inside a block, at its border, behind it, and more than a span of keys (256).
PROMPTS = [[5 + i * 7 % 200 for i in range(length)] for length in (3, 16, 33, 270)]


def facts(answer):
    return [(c.token_ids, c.logprobs, c.top) for c in answer.all_choices()]


def start(channel, prefill, decode, first_flags=(), shown=None):
    """A cluster whose i-th worker has the device i; the flags are of the first one."""
    made = Cluster(workers=0, worker_flags=[*CUDA, "--kv-channel", channel], router_flags=NO_MOVES)
    made.__enter__()
    try:
        for i in range(prefill + decode):
            role = "prefill" if i < prefill else "decode"
            made.start_worker(role=role, wait=False,
                              flags=["--device", i, *(first_flags if i == 0 else [])])
        for worker in made.workers:
            worker.wait_ready()
        made.wait_active(prefill + decode)
        # A request goes where there is a pair.
        wait_until(lambda: flows(made, shown or channel) == prefill * decode * 2, 30, lambda: made.client.state())
    except BaseException:
        made.close()
        raise
    return made


def flows(cluster, channel):
    """How many ends of pairs are up over the channel."""
    return sum(flow.channel == channel for worker in cluster.client.state().workers for flow in worker.kv_flows)


def moved(cluster, role):
    """Bytes that landed at the other end, as the workers of a role have counted."""
    return sum(flow.bytes for worker in cluster.client.state().workers if worker.role == role for flow in worker.kv_flows)


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CudaChannelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["HOST_CUDA_DEVICES"] = str(DEVICES)
        cls.addClassCleanup(os.environ.pop, "HOST_CUDA_DEVICES")
        with Cluster(workers=1, worker_flags=CUDA) as one:
            cls.alone = [facts(one.client.generate(prompt, **GREEDY)) for prompt in PROMPTS]

    def check_all(self, cluster, what):
        for prompt, alone in zip(PROMPTS, self.alone, strict=True):
            self.assertEqual(facts(cluster.client.generate(prompt, **GREEDY)), alone, f"{what}, {len(prompt)} tokens")
        beside = [Background(cluster.client, prompt, **GREEDY) for prompt in PROMPTS]
        for stream, prompt, alone in zip(beside, PROMPTS, self.alone, strict=True):
            stream.join()
            self.assertIsNone(stream.error, f"{what}, {len(prompt)} tokens beside others")
            self.assertEqual(facts(stream.answer), alone, f"{what}, {len(prompt)} tokens beside others")

    def check_channel(self, channel, prefill, decode):
        what = f"{prefill} + {decode} over {channel}"
        cluster = start(channel, prefill, decode)
        with contextlib.closing(cluster):
            baseline = cluster.blocks_free()
            self.check_all(cluster, what)
            wait_until(lambda: cluster.blocks_free() == baseline, 2, "blocks come back")
            wait_until(lambda: moved(cluster, PREFILL) == moved(cluster, DECODE) > 0, 5, cluster.client.state)
            self.assertEqual(flows(cluster, channel), prefill * decode * 2, what)
            self.assertIn(channel, cluster.cli("status").stdout)
            self.assertTrue(all(f"over {channel}" in worker.text() for worker in cluster.of_role("prefill")), what)
            cluster.check_alive()

    def check_killed(self, channel):
        """A prefill worker dies while a piece of it is on its way: its request says so, the next goes to the other, nothing leaks."""
        cluster = start(channel, 2, 1, first_flags=["--fault", "stall=1"])
        with contextlib.closing(cluster):
            victim = cluster.workers[0]
            free = lambda: sum(w.blocks_free for w in cluster.active() if w.role == DECODE)
            baseline = free()
            for turn in range(20):  # until one goes to the worker with the fault
                prompt = [5 + (i + turn) * 7 % 200 for i in range(270)]
                stream = Background(cluster.client, prompt, **GREEDY)
                wait_until(lambda: stream.done.is_set() or "injected fault" in victim.text(), 30, "an answer or the fault")
                if "injected fault" in victim.text():
                    break
            self.assertIn("injected fault", victim.text())
            victim.end(signal.SIGKILL)
            stream.join()
            self.assertEqual(stream.error.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertIn("prefill", stream.error.details())
            wait_until(lambda: free() == baseline, 15, cluster.client.state)
            self.assertEqual(facts(cluster.client.generate(PROMPTS[3], **GREEDY)), self.alone[3])
            wait_until(lambda: free() == baseline, 2, cluster.client.state)

    def test_cuda_ipc_one_and_one(self):
        self.check_channel("cuda-ipc", 1, 1)

    def test_cuda_ipc_two_and_two(self):
        self.check_channel("cuda-ipc", 2, 2)

    def test_cuda_ipc_prefill_killed(self):
        self.check_killed("cuda-ipc")

    def test_nccl_one_and_one(self):
        self.check_channel("nccl", 1, 1)

    def test_nccl_two_and_two(self):
        self.check_channel("nccl", 2, 2)

    def test_nccl_prefill_killed(self):
        self.check_killed("nccl")

    def test_auto_between_gpus_of_a_host_is_cuda_ipc(self):
        with contextlib.closing(start("auto", 1, 1, shown="cuda-ipc")) as cluster:
            cluster.check_alive()

    def test_channels_between_gpus_are_not_for_cpus(self):
        with Cluster(workers=0) as empty:
            for channel in ("cuda-ipc", "nccl"):
                worker = Server([BUILD / "sluice_decode", "--role", "decode", "--model", empty.model, "--backend", "cpu",
                                 "--kv-channel", channel], empty.folder / f"{channel}.log")
                self.assertNotEqual(worker.process.wait(60), 0)
                self.assertIn(f"--kv-channel: {channel} is for KV in one GPU's memory", worker.text())


if __name__ == "__main__":
    unittest.main()
