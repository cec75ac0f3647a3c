"""A seeded request gives the same tokens and log-probabilities, bit for bit, whatever happens around it and to it: alone,
among others, preempted, with prefill and decode apart, with and without drafts.

That what a case is about did happen is asserted from the workers' counters (`sluice status --json`).
"""
import json
import random
import unittest

from cluster import Cluster, wait_until
from sluice_client import Background

SEED = random.randrange(1 << 30)
BLOCK = 16
SAMPLED = {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.1, "presence_penalty": 0.4, "frequency_penalty": 0.2,
           "logprobs": 3, "ignore_eos": True, "max_tokens": 120}


def requests(rng):
    """(name, prompt, fields)."""
    prompt = [rng.randrange(3, 200) for _ in range(2 * BLOCK + 5)]
    few = {token: 100.0 for token in (20, 21, 22)}  # so few that its text repeats itself: drafts are proposed
    return [
        ("sampled", prompt, {**SAMPLED, "seed": 7}),
        ("of three tokens", [20, 21, 22] * 7, {**SAMPLED, "seed": 8, "logit_bias": few}),
        ("four answers", prompt[:BLOCK], {**SAMPLED, "seed": 9, "n": 4, "max_tokens": 40}),
    ]


def facts(answer):
    return [(c.token_ids, c.logprobs, c.top, c.text, c.finish_reason) for c in answer.all_choices()]


class SeededTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.rng = random.Random(SEED)
        cls.asked = requests(cls.rng)
        cls.cluster = cls.enter(workers=1, worker_flags=["--drafts", 0])
        cls.alone = [facts(cls.cluster.client.generate(prompt, **fields)) for _, prompt, fields in cls.asked]

    @classmethod
    def enter(cls, **options):
        first = getattr(cls, "cluster", None)
        cluster = Cluster(**options, model=first and first.model)
        cls.addClassCleanup(cluster.close)
        return cluster.__enter__()

    def counters(self, cluster, role):
        """Of all workers of that role, summed."""
        out = cluster.cli("status", "--json")
        self.assertEqual(out.returncode, 0, out.stderr)
        engines = [w["engine"] for w in json.loads(out.stdout)["workers"] if w["role"] == role]
        return {name: sum(engine[name] for engine in engines) for name in engines[0]}

    def others(self, count):
        """Requests of many kinds that run as long as those which are compared, or longer."""
        for i in range(count):
            prompt = [self.rng.randrange(3, 200) for _ in range(self.rng.choice([1, 15, 16, 17, 40, 100]))]
            yield prompt, {"max_tokens": self.rng.choice([60, 150, 250]), "ignore_eos": True, "seed": i,
                           "temperature": self.rng.choice([0.0, 0.9, 1.5]), "top_k": self.rng.choice([0, 20]),
                           "presence_penalty": self.rng.choice([0.0, 1.0]), "logprobs": self.rng.choice([0, 5])}

    def check(self, cluster, others=0, **more):
        for (name, prompt, fields), alone in zip(self.asked, self.alone, strict=True):
            around = [Background(cluster.client, p, **f) for p, f in self.others(others)]
            answer = cluster.client.generate(prompt, **fields, **more)
            self.assertEqual(facts(answer), alone, name)
            for call in around:
                call.join(120)
                self.assertIsNone(call.error, name)

    def check_all_at_once(self, cluster, copies):
        calls = [(i, Background(cluster.client, prompt, **fields))
                 for _ in range(copies) for i, (_, prompt, fields) in enumerate(self.asked)]
        for i, call in calls:
            answer = call.join(120)
            self.assertIsNone(call.error, self.asked[i][0])
            self.assertEqual(facts(answer), self.alone[i], self.asked[i][0])

    def test_alone_and_again(self):
        self.check(self.cluster)
        texts = {tuple(tokens) for tokens, *_ in self.alone[2]}
        self.assertEqual(len(texts), 4, "four answers, all of them different")

    def test_among_sixteen_others(self):
        before = self.counters(self.cluster, "both")
        self.check(self.cluster, others=16)
        after = self.counters(self.cluster, "both")
        steps, rows = (after[name] - before[name] for name in ("steps", "rows"))
        self.assertGreater(rows, 4 * steps, "they ran side by side")

    def test_preempted(self):
        """Answers of ten blocks each begin in a pool of twenty-four, where each was promised those of its prompt."""
        cluster = self.enter(workers=1, router_flags=["--headroom-tokens", 1], worker_flags=["--kv-blocks", 24, "--drafts", 0])
        total = cluster.blocks_free()
        for copies in (2, 3):
            self.check_all_at_once(cluster, copies)
        self.assertGreater(self.counters(cluster, "both")["preemptions"], 0)
        for i in range(2):
            self.preempt(cluster, i)
        self.assertEqual(cluster.blocks_free(), total)

    def preempt(self, cluster, i):
        """Two requests, of which the other one is more urgent: only this one can have been preempted."""
        name, prompt, fields = self.asked[i]
        for _ in range(20):
            before = self.counters(cluster, "both")["preemptions"]
            urgent = Background(cluster.client, [3] * 20, max_tokens=340, ignore_eos=True, priority=-1)
            wait_until(lambda: len(urgent.answer.token_ids) >= 100, 60, "tokens of the urgent one")
            answer = cluster.client.generate(prompt, **fields)
            urgent.join(120)
            self.assertIsNone(urgent.error)
            self.assertEqual(facts(answer), self.alone[i], name)
            if self.counters(cluster, "both")["preemptions"] > before:
                return
        self.fail(f"{name}: never preempted in twenty tries")

    def test_preempted_with_prefill_and_decode_apart(self):
        cluster = self.enter(workers=0, prefill=1, decode=1, router_flags=["--headroom-tokens", 1],
                             decode_flags=["--kv-blocks", 24, "--drafts", 0])
        for copies in (2, 3):
            self.check_all_at_once(cluster, copies)
        self.assertGreater(self.counters(cluster, "decode")["preemptions"], 0)

    def test_nobody_is_preempted_where_whole_answers_are_promised(self):
        cluster = self.enter(workers=1, worker_flags=["--kv-blocks", 24, "--drafts", 0])
        self.check_all_at_once(cluster, 3)
        self.assertEqual(self.counters(cluster, "both")["preemptions"], 0)

    def test_one_and_one(self):
        cluster = self.enter(workers=0, prefill=1, decode=1)
        self.check(cluster)
        self.check(cluster, others=16)

    def test_two_and_two(self):
        cluster = self.enter(workers=0, prefill=2, decode=2)
        self.check_all_at_once(cluster, 4)

    def test_with_drafts(self):
        for roles, decodes in (({"workers": 1}, "both"), ({"workers": 0, "prefill": 1, "decode": 1}, "decode")):
            cluster = self.enter(**roles, worker_flags=["--drafts", 4])
            self.check(cluster)
            self.check(cluster, others=4)
            counters = self.counters(cluster, decodes)
            self.assertGreater(counters["drafted_tokens"], 0, decodes)
            self.assertGreater(counters["accepted_tokens"], 0, decodes)


if __name__ == "__main__":
    unittest.main()
