"""KV between workers with GPUs, on the test runtime (tests/host_cuda): over every channel the tokens are those of one worker,
to the bit, and the bytes went that way.

Each worker has a device of its own, as NCCL wants it.
"""
import os
import signal
import time
import unittest

import grpc

from cluster import BUILD, Cluster, Server, wait_until
from sluice_client import Background

PLUGIN = BUILD / "backend_cuda_host.so"
DEVICES = 4
CUDA = ["--backend", "cuda", "--cuda-plugin", str(PLUGIN), "--kv-blocks", "200"]
GREEDY = {"max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
# Inside a block, at its border, behind it, and more than a span of keys (256).
PROMPTS = [[5 + i * 7 % 200 for i in range(length)] for length in (3, 16, 33, 270)]


def facts(answer):
    return [(c.token_ids, c.logprobs, c.top) for c in answer.all_choices()]


def start(channel, prefill, decode, prefill_flags=()):
    """A cluster whose i-th worker has the device i."""
    made = Cluster(workers=0, worker_flags=[*CUDA, "--kv-channel", channel])
    made.__enter__()
    try:
        for i in range(prefill + decode):
            role = "prefill" if i < prefill else "decode"
            made.start_worker(role=role, wait=False,
                              flags=["--device", i, *(prefill_flags if role == "prefill" else [])])
        for worker in made.workers:
            worker.wait_ready()
        made.wait_active(prefill + decode)
        # A request goes where there is a pair.
        wait_until(lambda: flows(made, channel) == prefill * decode * 2, 30, lambda: made.client.state())
    except BaseException:
        made.close()
        raise
    return made


def flows(cluster, channel):
    """How many ends of pairs are up over the channel."""
    return sum(flow.channel == channel for worker in cluster.client.state().workers for flow in worker.kv_flows)


def moved(cluster, role):
    """Bytes that landed at the other end, as the workers of a role (2: prefill, 3: decode) have counted."""
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
        with cluster:
            baseline = cluster.blocks_free()
            self.check_all(cluster, what)
            wait_until(lambda: cluster.blocks_free() == baseline, 2, "blocks come back")
            wait_until(lambda: moved(cluster, 2) == moved(cluster, 3) > 0, 5, cluster.client.state)
            self.assertEqual(flows(cluster, channel), prefill * decode * 2, what)
            self.assertIn(channel, cluster.cli("status").stdout)
            self.assertTrue(all(f"over {channel}" in worker.text() for worker in cluster.of_role("prefill")), what)
            cluster.check_alive()

    def check_killed(self, channel):
        """A prefill worker dies while a piece of it is on its way: the other one takes over, nothing leaks."""
        cluster = start(channel, 2, 1, prefill_flags=["--fault", "stall=1"])
        with cluster:
            baseline = sum(w.blocks_free for w in cluster.active() if w.role == 3)
            stream = Background(cluster.client, PROMPTS[3], **GREEDY)
            stalled = wait_until(lambda: [w for w in cluster.of_role("prefill") if "injected fault" in w.text()], 20,
                                 "a piece is held back")
            stalled[0].end(signal.SIGKILL)
            began = time.monotonic()
            stream.join()
            self.assertIsNone(stream.error)
            self.assertEqual(facts(stream.answer), self.alone[3])
            wait_until(lambda: sum(w.blocks_free for w in cluster.active() if w.role == 3) == baseline, 15,
                       cluster.client.state)
            self.assertLess(time.monotonic() - began, 30)
            cluster.check_alive()

    def test_cuda_ipc_one_and_one(self):
        self.check_channel("cuda-ipc", 1, 1)

    def test_cuda_ipc_two_and_two(self):
        self.check_channel("cuda-ipc", 2, 2)

    def test_cuda_ipc_prefill_killed(self):
        self.check_killed("cuda-ipc")


if __name__ == "__main__":
    unittest.main()
