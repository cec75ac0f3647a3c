"""Prefill and decode apart, on real processes: the same tokens and the same bits as one worker that does both.

Each request is asked of `both`, then of 1 prefill + 1 decode worker, then of 2 + 2, many at once. Golden prompts, lengths
around block boundaries, prompts of 2,000 tokens; greedy and sampled with a seed. SLUICE_TEST_ALL=1 (deploy/test --all)
asks for more of them.
"""
import json
import os
import pathlib
import random
import unittest

from cluster import Cluster, real_model, wait_until
from sluice_client import ACTIVE, Background

ALL = os.environ.get("SLUICE_TEST_ALL") == "1"
SEED = int(os.environ.get("SLUICE_TEST_SEED") or random.randrange(1 << 30))
GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden/golden_smollm2.json").read_text(encoding="utf-8"))["prompts"]
BLOCK = 16
LONG = 2000
PATIENCE = 600  # seconds; a busy machine is slow, and no speed is promised here
ROLES = {"prefill": 1, "decode": 2, "both": 3}
FLAGS = ["--threads", 1, "--kv-bytes", "512M"]


def requests():
    """(name, prompt, fields) of everything that is asked."""
    rng = random.Random(SEED)

    def tokens(n):
        return [rng.randrange(500, 40000) for _ in range(n)]

    asked = []
    for i, prompt in enumerate(GOLDEN):
        sampled = {"temperature": 0.9, "top_p": 0.95, "seed": 1000 + i}
        n = 64 if ALL else 16
        if ALL or i % 2 == 0 or prompt["name"] == "long_1500":
            asked.append((f"golden {prompt['name']}, greedy", prompt["text"], {"max_tokens": n}))
        if ALL or (i % 2 == 1 and prompt["name"] != "long_1500"):
            asked.append((f"golden {prompt['name']}, sampled", prompt["text"], {"max_tokens": n, **sampled}))
    for k in (1, 2, 3, 5, 8, 31) if ALL else (1, 2, 5):
        for length in (k * BLOCK - 1, k * BLOCK, k * BLOCK + 1):
            prompt = tokens(length)
            asked.append((f"{length} tokens, greedy", prompt, {"max_tokens": BLOCK + 2}))
            asked.append((f"{length} tokens, sampled", prompt,
                          {"max_tokens": 3, "temperature": 1.1, "top_k": 60, "seed": length}))
    # max_tokens 1 never leaves the prefill worker, 2 has one token of the decode worker.
    for n in (1, 2):
        asked.append((f"max_tokens {n}", tokens(40), {"max_tokens": n}))
    for i in range(2 if not ALL else 6):
        greedy = i % 2 == 0
        asked.append((f"{LONG} tokens, {'greedy' if greedy else 'sampled'}", tokens(LONG + (i + 1) // 2),
                      {"max_tokens": 8} if greedy else {"max_tokens": 8, "temperature": 0.8, "seed": 77 + i}))
    return [(name, prompt, {**fields, "ignore_eos": True, "logprobs": 2}) for name, prompt, fields in asked]


class SplitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.asked = requests()
        cls.model = real_model()
        with Cluster(model=cls.model, worker_flags=["--kv-bytes", "512M"]) as both:
            calls = [Background(both.client, prompt, timeout=PATIENCE, **fields) for _, prompt, fields in cls.asked]
            cls.alone = [call.join(PATIENCE) for call in calls]
        for (name, prompt, fields), answer in zip(cls.asked, cls.alone, strict=True):
            assert len(answer.token_ids) == fields["max_tokens"] == len(answer.logprobs), name

    def check(self, call, want, name):
        answer = call.join(PATIENCE)
        self.assertIsNone(call.error, name)
        self.assertEqual(answer.prompt_ids, want.prompt_ids, name)
        self.assertEqual(answer.token_ids, want.token_ids, name)
        self.assertEqual(answer.logprobs, want.logprobs, name)  # bit for bit
        self.assertEqual(answer.top, want.top, name)
        self.assertEqual(answer.text, want.text, name)
        self.assertEqual(answer.finish_reason, want.finish_reason, name)
        # How much was cached is a matter of who asked what before.
        for field in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(getattr(answer.usage, field), getattr(want.usage, field), name)
        return answer

    def check_roles(self, cluster, answer, max_tokens, name):
        """The first token is of a prefill worker, the rest of a decode worker, and KV went from one to the other."""
        roles = {w.port: role for w in cluster.client.state().workers for role, n in ROLES.items() if n == w.role}
        by = {}
        for event in answer.timing.timeline:
            if event.worker:
                by.setdefault(event.name, set()).add(roles[int(event.worker.rsplit(":", 1)[1])])
        self.assertEqual(by["prefill_chunk"], {"prefill"}, name)
        self.assertEqual(by["first_token"], {"prefill"}, name)
        if max_tokens > 1:
            self.assertEqual(by["committed"], {"decode"}, name)
            self.assertEqual(by["decoding"], {"decode"}, name)

    def check_idle(self, cluster, baseline):
        wait_until(lambda: cluster.blocks_free() == baseline, 2, cluster.client.state)
        state = cluster.client.state()
        self.assertEqual((state.queued, state.running), (0, 0))

    def ask_all(self, cluster):
        baseline = cluster.blocks_free()
        calls = [Background(cluster.client, prompt, timeout=PATIENCE, **fields) for _, prompt, fields in self.asked]
        for call, want, (name, _, fields) in zip(calls, self.alone, self.asked, strict=True):
            self.check_roles(cluster, self.check(call, want, name), fields["max_tokens"], name)
        self.check_idle(cluster, baseline)
        return calls

    def test_one_and_one(self):
        with Cluster(workers=0, prefill=1, decode=1, model=self.model, worker_flags=FLAGS) as cluster:
            calls = self.ask_all(cluster)
            long = [call.answer for call in calls if len(call.answer.prompt_ids) >= LONG]
            self.assertGreaterEqual(len(long), 2)
            for answer in long:
                self.check_flow(answer)

    def check_flow(self, answer):
        """At least four fifths of the bytes were acknowledged when the prompt was computed."""
        acked = total = 0
        end = max(e.at_ms for e in answer.timing.timeline if e.name == "prefill_chunk")
        for event in answer.timing.timeline:
            if event.name == "piece_acked" and event.at_ms <= end:
                acked = max(acked, event.amount)
            if event.name == "committed":
                total = event.amount
        print(f"{len(answer.prompt_ids)} tokens: {acked / total:.1%} of {total} bytes acknowledged before the prompt's end",
              flush=True)
        self.assertGreaterEqual(acked / total, 0.8, answer.timing)

    def test_two_and_two(self):
        with Cluster(workers=0, prefill=2, decode=2, model=self.model, worker_flags=FLAGS) as cluster:
            calls = self.ask_all(cluster)
            self.check_spread(cluster, calls)

    def check_spread(self, cluster, calls):
        """All four workers had part of it, by the requests' own timelines and by what the workers hold meanwhile."""
        served = {}
        for call in calls:
            for event in call.answer.timing.timeline:
                if event.name in ("prefill_chunk", "decoding"):
                    served.setdefault(event.worker, set()).add(id(call))
        print({worker: len(requests) for worker, requests in served.items()}, flush=True)
        self.assertEqual(len(served), 4, served)
        self.assertTrue(all(len(requests) >= 3 for requests in served.values()), served)

        at_rest = {w.pid: w.blocks_free for w in cluster.active()}
        # Prompts of their own: those that begin alike would meet at one prefill worker.
        running = [Background(cluster.client, [700 + 11 * i] * 900, max_tokens=200, ignore_eos=True) for i in range(4)]
        busy = set()

        def all_seen():
            busy.update(w.pid for w in cluster.client.state().workers
                        if w.state == ACTIVE and w.blocks_free < at_rest[w.pid])
            return busy == set(at_rest)
        wait_until(all_seen, 60, cluster.client.state)
        for call in running:
            call.cancel()
        self.check_idle(cluster, sum(at_rest.values()))


if __name__ == "__main__":
    unittest.main()
