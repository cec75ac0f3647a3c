"""Workers of several ranks, as processes: the answers of one rank bit for bit, whoever prefills for whom, with prefixes
cached on either side; and nobody hangs, and nothing is left, when a rank or rank 0 is lost."""
import os
import random
import signal
import unittest

from cluster import NO_MOVES, Cluster, real_model, wait_until
from processes import children, lives
from sluice_client import Background

PATIENCE = 300
FLAGS = ["--threads", 1, "--kv-bytes", "512M"]


def questions():
    rng = random.Random(5)
    shared = [rng.randrange(500, 40000) for _ in range(64)]  # whole blocks, which prefix caches keep
    asked = []
    for i, length in enumerate((1, 16, 33, 150, 700)):
        prompt = shared + [rng.randrange(500, 40000) for _ in range(length)]
        fields = {"max_tokens": 12, "ignore_eos": True, "logprobs": 2, "seed": i}
        asked.append((prompt, {**fields, "temperature": 0.9 if i % 2 else 0}))
    return asked


class TensorParallelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.asked = questions()
        with Cluster(model=real_model(), worker_flags=FLAGS) as one:
            cls.alone = cls.answers(one)

    @classmethod
    def answers(cls, cluster):
        """Asks everything twice: prefixes are cached the second time."""
        told = []
        for _ in range(2):
            calls = [Background(cluster.client, prompt, timeout=PATIENCE, **fields) for prompt, fields in cls.asked]
            answers = [call.join(PATIENCE) for call in calls]
            told.append([(a.token_ids, a.logprobs, a.top, a.text) for a in answers])
        return told

    def check(self, **shape):
        with Cluster(model=real_model(), worker_flags=FLAGS, **shape) as cluster:
            self.assertEqual(self.answers(cluster), self.alone)
            pids = [worker.process.pid for worker in cluster.workers]
            ranks = [child for pid in pids for child in children(pid)]
            return len(ranks)

    def test_one_worker_of_three_ranks(self):
        with Cluster(model=real_model(), worker_flags=[*FLAGS, "--tp", 3]) as cluster:
            self.assertEqual(self.answers(cluster), self.alone)
            others = children(cluster.workers[0].process.pid)
            self.assertEqual(len(others), 2)
        wait_until(lambda: not any(map(lives, others)), 5, "ranks outlive their worker")

    def test_any_ranks_prefill_for_any(self):
        for prefill, decode, channel in ((2, 1, "auto"), (1, 2, "auto"), (2, 3, "tcp")):
            with self.subTest(prefill=prefill, decode=decode, channel=channel):
                both = ["--kv-channel", channel, "--tp"]
                ranks = self.check(workers=0, prefill=1, decode=1, prefill_flags=[*both, prefill],
                                   decode_flags=[*both, decode])
                self.assertEqual(ranks, prefill + decode - 2)

    def test_a_lost_rank_ends_its_worker(self):
        with Cluster(model=real_model(), worker_flags=[*FLAGS, "--tp", 2], router_flags=NO_MOVES) as cluster:
            worker = cluster.workers[0]
            other, = children(worker.process.pid)
            call = Background(cluster.client, [1000] * 200, timeout=PATIENCE, max_tokens=2000, ignore_eos=True)
            wait_until(lambda: call.answer.token_ids, 60, "no token")
            os.kill(other, signal.SIGKILL)
            call.join(10)
            self.assertIsNotNone(call.error)
            self.assertEqual(wait_until(lambda: worker.process.poll() is not None and [worker.process.poll()], 5,
                                        "the worker lives on"), [1])
            self.assertIn(f"rank 1 (process {other}) was killed", worker.text())

    def test_an_idle_worker_notices_too(self):
        with Cluster(model=real_model(), worker_flags=[*FLAGS, "--tp", 2]) as cluster:
            worker = cluster.workers[0]
            os.kill(children(worker.process.pid)[0], signal.SIGKILL)
            wait_until(lambda: worker.process.poll() is not None, 5, "the worker lives on")

    def test_ranks_die_with_rank_0(self):
        with Cluster(model=real_model(), worker_flags=[*FLAGS, "--tp", 3]) as cluster:
            others = children(cluster.workers[0].process.pid)
            cluster.workers[0].end(signal.SIGKILL)
            wait_until(lambda: not any(map(lives, others)), 5, "ranks outlive rank 0")

    def test_more_ranks_than_heads_are_refused(self):
        with self.assertRaisesRegex(AssertionError, "--tp: .*1 to 9"):
            with Cluster(model=real_model(), worker_flags=[*FLAGS, "--tp", 10]):
                pass


if __name__ == "__main__":
    unittest.main()
