"""Workers with the CUDA backend (on the test runtime) that plan the next step while one runs: the bits of workers that do not,
whatever else happens, and the counter shows that plans did overlap.
"""
import unittest

from cluster import wait_until
from e2e_cuda_test import GREEDY, PLUGIN, PROMPTS, cluster, facts
from sluice_client import Background

# Greedy, sampled, several choices, and a text that repeats itself, so that drafts hold.
REQUESTS = [*((prompt, GREEDY) for prompt in PROMPTS),
            (PROMPTS[1], {"n": 3, "seed": 9, "temperature": 1.0, "max_tokens": 8, "ignore_eos": True, "logprobs": 1}),
            ([7, 8, 9, 10] * 9, {"max_tokens": 16, "temperature": 0, "ignore_eos": True, "logprobs": 1}),
            (PROMPTS[2], {"max_tokens": 1, "temperature": 0, "logprobs": 1})]
FLAGS = ["--kv-blocks", "200", "--max-step-tokens", "96"]  # so that a prompt is several chunks


def ahead(cluster_):
    return sum(worker.engine.steps_ahead for worker in cluster_.client.state().workers)


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class PlanAheadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with cluster(workers=1, flags=[*FLAGS, "--no-plan-ahead", "--drafts", "0"]) as one:
            cls.alone = [facts(one.client.generate(prompt, **fields)) for prompt, fields in REQUESTS]
            cls.never = ahead(one)

    def check(self, running, what):
        """Twice, so that prompts are found in the cache, and then all at once."""
        baseline = running.blocks_free()
        for which in ("first", "cached"):
            for (prompt, fields), alone in zip(REQUESTS, self.alone, strict=True):
                self.assertEqual(facts(running.client.generate(prompt, **fields)), alone,
                                 f"{what}, {which}, {len(prompt)} tokens, {fields}")
        beside = [Background(running.client, prompt, **fields) for prompt, fields in REQUESTS]
        for stream, (prompt, fields), alone in zip(beside, REQUESTS, self.alone, strict=True):
            stream.join()
            self.assertIsNone(stream.error, what)
            self.assertEqual(facts(stream.answer), alone, f"{what}, beside others, {len(prompt)} tokens, {fields}")
        wait_until(lambda: running.blocks_free() == baseline, 2, "blocks come back")
        wait_until(lambda: ahead(running) > 0, 5, f"{what}: no step was planned ahead")
        running.check_alive()

    def test_not_where_it_is_declined(self):
        self.assertEqual(self.never, 0)

    def test_one_worker(self):
        with cluster(workers=1, flags=[*FLAGS, "--drafts", "0"]) as one:
            self.check(one, "graphs")

    def test_without_graphs_and_with_drafts(self):
        with cluster(workers=1, flags=[*FLAGS, "--no-cuda-graphs"]) as one:
            self.check(one, "launch by launch, drafts")

    def test_preempted(self):
        # Two prompts of 9 blocks each are admitted to 20, and their answers want 4 more each.
        growing = [[9 + (i * step) % 190 for i in range(130)] for step in (7, 11)]
        fields = {"max_tokens": 60, "temperature": 0, "ignore_eos": True, "logprobs": 1}
        with cluster(workers=1, flags=["--kv-blocks", "20", "--max-context", "300", "--max-step-tokens", "96"],
                     router_flags=["--headroom-tokens", "1"]) as scarce:
            self.check(scarce, "20 blocks")
            alone = [facts(scarce.client.generate(prompt, **fields)) for prompt in growing]
            for _ in range(10):
                both = [Background(scarce.client, prompt, **fields) for prompt in growing]
                for stream, want in zip(both, alone, strict=True):
                    stream.join()
                    self.assertIsNone(stream.error)
                    self.assertEqual(facts(stream.answer), want)
                scarce.wait_active(1)
                if scarce.client.state().workers[0].engine.preemptions > 0:
                    return
            self.fail("never preempted in ten tries")

    def test_one_and_one(self):
        with cluster(workers=0, prefill=1, decode=1, flags=FLAGS) as split:
            self.check(split, "1 + 1")

    def test_cancelled(self):
        with cluster(workers=0, prefill=1, decode=1, flags=FLAGS) as split:
            baseline = split.blocks_free()
            for after in range(6):
                stream = split.client.stream(PROMPTS[3], 60, **{**GREEDY, "max_tokens": 200})
                for _ in range(after):
                    next(stream)
                stream.cancel()
                wait_until(lambda: split.blocks_free() == baseline, 2, f"blocks after {after} messages")
            self.assertEqual(facts(split.client.generate(PROMPTS[3], **GREEDY)), self.alone[3])


if __name__ == "__main__":
    unittest.main()
