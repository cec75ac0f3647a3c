"""What the tests of faults between real prefill and decode workers share: the requests with their right answers, and what
is owed after each fault. Requests do not move to other workers here, so that each fault shows its class; how they move
is e2e_failover_test.py."""
import os
import random
import time
import unittest

import grpc

from cluster import NO_MOVES, Cluster, real_model, wait_until

os.environ["GLOG_v"] = "2"  # the workers' logs tell of pairs and pieces

SEED = int(os.environ.get("SLUICE_TEST_SEED") or random.randrange(1 << 30))
FREE_WITHIN, ERROR_WITHIN = 2, 1  # seconds, promised
LEASE = 3
SILENCE = 10  # of a pair, until it is given up
BLOCKS = 160
LONG = 2000
FLAGS = ["--threads", 1, "--kv-blocks", BLOCKS, "--lease-ms", LEASE * 1000]
UNAVAILABLE, ABORTED, DATA_LOSS = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.DATA_LOSS


def fresh(length):
    """A prompt that nobody has seen: no prefix of it is cached anywhere."""
    return [random.randrange(500, 40000) for _ in range(length)]


def requests():
    rng = random.Random(SEED)
    asked = []
    for i, length in enumerate((33, 40, 64, 65, 90, 100, 130, 200)):
        fields = {"max_tokens": 6, "ignore_eos": True, "logprobs": 0, "seed": i, "temperature": 0.9 * (i % 2)}
        asked.append(([rng.randrange(500, 40000) for _ in range(length)], fields))
    return asked


class Faults(unittest.TestCase):
    """What all of them need; the expected answers come from one worker that does both."""

    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.model = real_model()
        cls.asked = requests()
        with Cluster(model=cls.model, worker_flags=["--kv-blocks", BLOCKS]) as both:
            cls.alone = [both.client.generate(prompt, **fields) for prompt, fields in cls.asked]
            cls.counted = both.client.generate("Count:", max_tokens=60, ignore_eos=True).token_ids

    def start(self, **options):
        self.cluster = Cluster(workers=0, model=self.model, worker_flags=FLAGS, router_flags=[*NO_MOVES, "--no-fallback-both"], **options)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.client
        self.next_is_fine()
        self.all_free(10)

    def all_free(self, within=FREE_WITHIN):
        began = time.monotonic()

        def idle():
            state = self.client.state()
            return (state.queued == 0 and state.running == 0 and self.cluster.active()
                    and all(w.blocks_free == w.blocks_total and w.running == w.waiting == 0
                            for w in self.cluster.active()))
        wait_until(idle, within, self.client.state)
        return time.monotonic() - began

    def next_is_fine(self, which=0):
        prompt, fields = self.asked[which]
        answer = self.client.generate(prompt, timeout=20, **fields)
        self.assertEqual(answer.token_ids, self.alone[which].token_ids)
        self.assertEqual(answer.logprobs, self.alone[which].logprobs)

    def fails(self, call, since, *codes, within=ERROR_WITHIN):
        call.join(within + 10)
        self.assertIsNotNone(call.error, "it was answered")
        self.assertIn(call.error.code(), codes, call.error)
        self.assertLess(call.ended - since, within + 0.05, call.error)
        return call.error

    def free_of(self, role):
        """Of the newest worker of the role."""
        pid = self.cluster.of_role(role)[0].process.pid
        return next((w.blocks_free for w in self.cluster.active() if w.pid == pid), None)
