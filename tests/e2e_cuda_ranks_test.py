"""Workers of several ranks on GPUs, over NCCL, on the test runtime (tests/host_cuda): the answers of one rank bit for bit,
whoever prefills for whom; and nobody hangs, and all is said, when a rank dies, stands still or never comes."""
import contextlib
import os
import signal
import time
import unittest

import grpc

from cluster import BUILD, NO_MOVES, Cluster, Server, wait_until
from e2e_cuda_test import CUDA, GREEDY, PLUGIN, PROMPTS, environment, facts
from processes import children, lives
from sluice_client import Background

FLAGS = [*CUDA, "--kv-blocks", "120", "--max-context", "512"]
PATIENCE = 120
ASKED = [(PROMPTS[0], GREEDY), (PROMPTS[2], GREEDY), (PROMPTS[3][:100], GREEDY),
         (PROMPTS[1], {"n": 2, "seed": 9, "temperature": 1.0, "max_tokens": 8, "ignore_eos": True, "logprobs": 1})]


@contextlib.contextmanager
def ranks(**wanted):
    """Whose workers have four GPUs each."""
    with environment(HOST_CUDA_DEVICES="4", **wanted.pop("variables", {})):
        cluster = Cluster(worker_flags=[*FLAGS, *wanted.pop("flags", [])], router_flags=NO_MOVES, **wanted)
        with cluster:
            yield cluster


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CudaRanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with ranks(workers=1) as one:
            cls.alone = cls.answers(one)

    @classmethod
    def answers(cls, cluster):
        """Side by side, then again: prefixes are cached the second time."""
        told = []
        for _ in range(2):
            calls = [Background(cluster.client, prompt, timeout=PATIENCE, **fields) for prompt, fields in ASKED]
            told.append([facts(call.join(PATIENCE)) for call in calls])
        return told

    def check(self, **shape):
        with ranks(**shape) as cluster:
            baseline = cluster.blocks_free()
            self.assertEqual(self.answers(cluster), self.alone)
            wait_until(lambda: cluster.blocks_free() == baseline, 5, "blocks come back")
            cluster.check_alive()
            return sum(len(children(worker.process.pid)) for worker in cluster.workers)

    def test_one_worker_of_two_ranks(self):
        self.assertEqual(self.check(workers=1, flags=["--tp", 2]), 1)

    def test_one_worker_of_three_ranks_without_graphs(self):
        self.assertEqual(self.check(workers=1, flags=["--tp", 3, "--no-cuda-graphs"]), 2)

    def test_two_prefill_for_one(self):
        self.assertEqual(self.check(workers=0, prefill=1, decode=1, prefill_flags=["--tp", 2]), 1)

    def test_one_prefills_for_two(self):
        self.assertEqual(self.check(workers=0, prefill=1, decode=1, decode_flags=["--tp", 2], flags=["--kv-channel", "tcp"]),
                         1)

    def test_two_prefill_for_two(self):
        self.assertEqual(self.check(workers=0, prefill=1, decode=1, flags=["--tp", 2]), 2)

    def ends(self, cluster, call, *words):
        """The worker ends within 5 s of now, with these words, and so does the request."""
        worker = cluster.workers[0]
        wait_until(lambda: worker.process.poll() is not None, 5, "the worker lives on")
        self.assertEqual(worker.process.poll(), 1)
        call.join(10)
        self.assertIsInstance(call.error, grpc.RpcError)
        self.assertIn(call.error.code(), (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL))
        for word in words:
            self.assertIn(word, worker.text())

    def long_call(self, cluster):
        call = Background(cluster.client, PROMPTS[1], timeout=PATIENCE, max_tokens=400, ignore_eos=True)
        wait_until(lambda: call.answer.token_ids, 60, "no token")
        return call

    def test_a_killed_rank_ends_its_worker(self):
        with ranks(workers=1, flags=["--tp", 2]) as cluster:
            other, = children(cluster.workers[0].process.pid)
            call = self.long_call(cluster)
            os.kill(other, signal.SIGKILL)
            self.ends(cluster, call, f"rank 1 (process {other}) was killed")

    def test_a_killed_rank_of_a_prefill_worker(self):
        with ranks(workers=0, prefill=1, decode=1, prefill_flags=["--tp", 2]) as cluster:
            worker = next(w for w in cluster.workers if children(w.process.pid))
            os.kill(children(worker.process.pid)[0], signal.SIGKILL)
            wait_until(lambda: worker.process.poll() is not None, 5, "the worker lives on")

    def test_ranks_die_with_rank_0(self):
        with ranks(workers=1, flags=["--tp", 3]) as cluster:
            others = children(cluster.workers[0].process.pid)
            self.long_call(cluster)
            cluster.workers[0].end(signal.SIGKILL)
            wait_until(lambda: not any(map(lives, others)), 5, "ranks outlive rank 0")

    def test_a_stopped_rank_ends_its_worker(self):
        with ranks(workers=1, flags=["--tp", 2, "--rank-timeout-ms", 1500]) as cluster:
            other, = children(cluster.workers[0].process.pid)
            call = self.long_call(cluster)
            os.kill(other, signal.SIGSTOP)
            time.sleep(1.5)
            self.ends(cluster, call, "stands still")
            self.assertFalse(lives(other))

    def test_an_operation_that_stands_still_ends_the_worker(self):
        # Behind those of the start, which are 4.
        with ranks(workers=1, flags=["--tp", 2, "--rank-timeout-ms", 1500],
                   variables={"HOST_CUDA_NCCL_STALL": "1:40:100000000"}) as cluster:
            call = Background(cluster.client, PROMPTS[1], timeout=PATIENCE, max_tokens=400, ignore_eos=True)
            worker = cluster.workers[0]
            wait_until(lambda: "stands still" in worker.text(), 60, "nobody notices")
            self.ends(cluster, call, "of 2: waited 1.5s for the step; a rank of it stands still")

    def fails(self, flags, **variables):
        """Words of a worker that does not start."""
        with environment(**variables), Cluster(workers=0) as empty:
            worker = Server([BUILD / "sluice_decode", "--role", "both", "--model", empty.model, *FLAGS, *flags],
                            empty.folder / "failing.log")
            self.assertNotEqual(worker.process.wait(60), 0)
            return worker.text()

    def test_what_is_missing_is_named(self):
        self.assertIn("libnccl-nowhere.so", self.fails(["--tp", 2, "--nccl-library", "libnccl-nowhere.so"],
                                                       HOST_CUDA_DEVICES="2"))
        self.assertIn("there is no GPU 1: this machine shows 1", self.fails(["--tp", 2], HOST_CUDA_DEVICES="1"))
        self.assertIn("unhandled cuda error",
                      self.fails(["--tp", 2], HOST_CUDA_DEVICES="2",
                                 HOST_CUDA_FAIL="ncclCommInitRankConfig:1=ncclUnhandledCudaError"))


if __name__ == "__main__":
    unittest.main()
