"""Clients that ask all the time for long answers of every kind, each known alone, while something happens to the cluster."""
import os
import random
import re
import statistics
import threading
import unittest

from cluster import Cluster, wait_until
from sluice_client import Background, Client

SEED = int(os.environ.get("SLUICE_TEST_SEED") or random.randrange(1 << 30))
LEASE = 3  # seconds
FLAGS = ["--threads", 1, "--kv-blocks", 300, "--lease-ms", LEASE * 1000]
ROUTER = ["--lease-ms", LEASE * 1000, "--heartbeat-ms", 300]
CLIENTS = 6


def make_pool(rng):
    """Long answers of every kind: a stream is most likely decoding when its worker dies."""
    pool = []
    shared = [rng.randrange(3, 290) for _ in range(64)]
    for i in range(24):
        prompt = shared[:16 * (i % 4)] + [rng.randrange(3, 290) for _ in range(rng.choice((15, 16, 17, 40, 100, 300)))]
        fields = {"max_tokens": rng.randrange(100, 400), "ignore_eos": True, "logprobs": 0, "seed": i}
        if i % 3 == 1:
            fields |= {"temperature": 0.9, "top_p": 0.95, "presence_penalty": 0.5, "frequency_penalty": 0.25}
        if i % 6 == 2:
            fields |= {"temperature": 0.8, "repetition_penalty": 1.1, "n": 3, "max_tokens": 150}
        if i % 6 == 5:
            fields |= {"temperature": 1.0, "prompt_logprobs": 0, "min_tokens": 30, "ignore_eos": False}
        pool.append((prompt, fields))
    return pool


def told(answer, n):
    return [(c.token_ids, c.logprobs, c.text, c.finish_reason) for c in (answer.choice(i) for i in range(n))]


class StreamLoad(unittest.TestCase):
    """What the tests share that demand: every stream ends with the tokens and log-probabilities that it has alone."""

    router_flags = ROUTER

    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.pool = make_pool(random.Random(SEED))
        with Cluster(worker_flags=FLAGS) as both:
            cls.alone = [told(both.client.generate(p, **f), f.get("n", 1)) for p, f in cls.pool]

    def setUp(self):
        self.cluster = Cluster(workers=0, prefill=2, decode=2, worker_flags=FLAGS, router_flags=self.router_flags)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.close)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.wrong, self.moved, self.largest_gaps, self.whole = [], 0, [], 0
        self.threads = []

    # ---- load ----

    def load(self):
        for i in range(CLIENTS):
            self.threads.append(threading.Thread(target=self.ask_all_the_time, args=(random.Random(f"{SEED} {i}"),)))
            self.threads[-1].start()
        self.addCleanup(self.end_load)

    def end_load(self):
        self.over.set()
        for thread in self.threads:
            thread.join(100)
        self.threads = []

    def ask_all_the_time(self, rng):
        client = Client(self.cluster.address, like=self.cluster.client)
        while not self.over.is_set():
            which = rng.randrange(len(self.pool))
            prompt, fields = self.pool[which]
            call = Background(client, prompt, **fields)
            call.join(100)
            with self.lock:
                if call.error is not None:
                    self.wrong.append(f"request {which}: {call.error.code().name}: {call.error.details()}")
                elif told(call.answer, fields.get("n", 1)) != self.alone[which]:
                    self.wrong.append(f"request {which}: another answer than alone")
                else:
                    self.whole += 1
                if call.error is None and call.answer.timing.moves:
                    self.moved += 1
                    gaps = [b - a for a, b in zip(call.arrivals, call.arrivals[1:])]
                    self.largest_gaps += [max(gaps)] if gaps else []
        client.close()

    def all_right(self, at_least_moved):
        self.end_load()
        self.assertEqual(self.wrong, [], f"{len(self.wrong)} of {len(self.wrong) + self.whole}")
        self.assertGreaterEqual(self.moved, at_least_moved, "the faults hit nothing")
        log = self.cluster.router.text()
        moves = len(re.findall(r" moves \(\d+\)", log))
        print(f"{self.whole} streams, all right; {self.moved} of them moved ({moves} moves)", flush=True)
        if self.largest_gaps:
            gaps = sorted(1000 * g for g in self.largest_gaps)
            print(f"largest gap of those that moved: p50 {statistics.median(gaps):.0f} ms, "
                  f"p99 {gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))]:.0f} ms, max {gaps[-1]:.0f} ms", flush=True)
        wait_until(lambda: all(w.blocks_free == w.blocks_total for w in self.cluster.active()), LEASE + 4,
                   self.cluster.client.state)
