"""The log-probabilities of a prompt: the same bits wherever and however it is computed, and the right ones.

The tiny model shows the bits, the real one the values (tests/golden/golden_smollm2.json, `about`).
"""
import http.client
import json
import pathlib
import random
import unittest

from cluster import Cluster, real_model
from sluice_client import Background

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden/golden_smollm2.json").read_text(encoding="utf-8"))
TOLERANCE = 2e-3
SEED = random.randrange(1 << 30)
BLOCK = 16
ASK = {"prompt_logprobs": 2, "max_tokens": 3, "ignore_eos": True}


def facts(answer):
    return answer.prompt_logprobs, answer.prompt_top, answer.token_ids


class PromptLogprobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        rng = random.Random(SEED)
        cls.cluster = Cluster(workers=1)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client
        cls.prompts = [[rng.randrange(3, 200) for _ in range(length)]
                       for length in (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, 130, 200)]
        cls.alone = [facts(cls.client.generate(prompt, **ASK)) for prompt in cls.prompts]

    def test_they_are_those_of_the_tokens_as_an_answer(self):
        """Token i + 1 of a prompt is what the prompt of i tokens may be answered with."""
        prompt, (logprobs, top, _) = self.prompts[5], self.alone[5]
        self.assertEqual(len(logprobs), len(prompt) - 1)
        for i in range(1, len(prompt)):
            # A bias decides what is drawn; log-probabilities are those before it.
            answer = self.client.generate(prompt[:i], max_tokens=1, logprobs=2, logit_bias={prompt[i]: 100.0})
            self.assertEqual(answer.token_ids, [prompt[i]])
            self.assertEqual(answer.logprobs, [logprobs[i - 1]], f"token {i}")
            self.assertEqual(answer.top, [top[i - 1]], f"token {i}")

    def test_one_token_has_none_and_nobody_gets_them_unasked(self):
        self.assertEqual(self.alone[0][0], [])
        self.assertEqual(self.client.generate(self.prompts[3], max_tokens=1).prompt_logprobs, [])
        with_none = self.client.generate(self.prompts[3], **{**ASK, "prompt_logprobs": 0})
        self.assertEqual(with_none.prompt_logprobs, self.alone[3][0])
        self.assertEqual(with_none.prompt_top, [[]] * len(self.alone[3][0]))

    def test_a_cached_prefix_is_computed_again(self):
        for prompt, alone in zip(self.prompts, self.alone, strict=True):
            without = self.client.generate(prompt, max_tokens=3, ignore_eos=True)
            self.assertEqual(without.usage.cached_tokens, (len(prompt) - 1) // BLOCK * BLOCK, "it is cached")
            again = self.client.generate(prompt, **ASK)
            self.assertEqual(facts(again), alone)
            self.assertEqual(again.usage.cached_tokens, 0)

    def check(self, cluster, **more):
        calls = [Background(cluster.client, prompt, **{**ASK, **more}) for prompt in self.prompts for _ in range(2)]
        for i, call in enumerate(calls):
            answer = call.join()
            self.assertIsNone(call.error)
            prompt, alone = self.prompts[i // 2], self.alone[i // 2]
            self.assertEqual(facts(answer)[:2], alone[:2], f"{len(prompt)} tokens")
            self.assertEqual(answer.token_ids, alone[2][:len(answer.token_ids)])

    def test_many_at_once_and_several_choices(self):
        self.check(self.cluster)
        self.check(self.cluster, n=3)

    def test_with_prefill_and_decode_apart(self):
        with Cluster(workers=0, prefill=1, decode=1, model=self.cluster.model) as cluster:
            baseline = cluster.blocks_free()
            for _ in range(2):  # the second time both have the prompts in their caches
                self.check(cluster)
            self.check(cluster, n=3)
            self.check(cluster, max_tokens=1)  # touches no decode worker
            self.assertEqual(cluster.blocks_free(), baseline)

    def test_small_chunks(self):
        with Cluster(model=self.cluster.model, worker_flags=["--max-step-tokens", 7, "--max-seqs", 4]) as cluster:
            self.check(cluster)

    # ---- the other fronts ----

    def post(self, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.cluster.router.fields["http"].rsplit(":", 1)[1]))
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    def test_http(self):
        prompt, (logprobs, top, _) = self.prompts[5], self.alone[5]
        status, body = self.post(prompt=prompt, prompt_logprobs=2, max_tokens=2, n=2)
        self.assertEqual(status, 200, body)
        for choice in body["choices"]:
            said = choice["prompt_logprobs"]
            self.assertEqual(len(said), len(prompt))
            self.assertIsNone(said[0])
            for i, entry in enumerate(said[1:]):
                want = {str(token): logprob for token, logprob in top[i]} | {str(prompt[i + 1]): logprobs[i]}
                self.assertEqual(set(entry), set(want))
                for token, logprob in want.items():
                    self.assertAlmostEqual(entry[token]["logprob"], logprob, delta=1e-5)
                self.assertEqual([entry[str(token)]["rank"] for token, _ in top[i]], [1, 2])
        status, body = self.post(prompt=prompt, max_tokens=2)
        self.assertNotIn("prompt_logprobs", body["choices"][0])
        for bad in (-1, 21):
            status, body = self.post(prompt=prompt, prompt_logprobs=bad)
            self.assertEqual((status, body["error"]["param"]), (400, "prompt_logprobs"), body)
        status, body = self.post(prompt=prompt, prompt_logprobs=1, stream=True)
        self.assertEqual((status, body["error"]["param"]), (400, "prompt_logprobs"), body)

    def test_cli(self):
        prompt, (logprobs, top, _) = self.prompts[5], self.alone[5]
        out = self.cluster.cli("generate", "--token-ids", ",".join(map(str, prompt)), "--prompt-logprobs", "2", "--json",
                               "--max-tokens", "2")
        self.assertEqual(out.returncode, 0, out.stderr)
        said = json.loads(out.stdout)
        self.assertEqual(said["prompt_token_ids"], prompt)
        self.assertIsNone(said["prompt_logprobs"][0])
        for one, other in zip(said["prompt_logprobs"][1:], logprobs, strict=True):
            self.assertAlmostEqual(one, other, delta=1e-5)
        self.assertEqual([[t["token_id"] for t in entry] for entry in said["prompt_top_logprobs"][1:]],
                         [[token for token, _ in entry] for entry in top])


class RealModelTest(unittest.TestCase):
    def test_the_reference(self):
        """A golden prompt with its greedy answer behind it: the reference knows every token of the answer."""
        with Cluster(workers=1, prefill=1, decode=1, model=real_model(), worker_flags=["--compute", "f32"]) as cluster:
            for prompt in GOLDEN["prompts"][:4]:
                with self.subTest(prompt["name"]):
                    ids, steps = prompt["ids_hf"], prompt["eos_at"] or GOLDEN["n"]
                    answer = cluster.client.generate(ids + prompt["output_ids"][:steps], prompt_logprobs=5, max_tokens=2)
                    self.assertEqual(len(answer.prompt_logprobs), len(ids) + steps - 1)
                    for step in range(steps):
                        at = len(ids) - 1 + step
                        self.assertAlmostEqual(answer.prompt_logprobs[at], prompt["top5"][step][0][1], delta=TOLERANCE,
                                               msg=f"step {step}")
                        for (_, got), (_, want) in zip(answer.prompt_top[at], prompt["top5"][step], strict=True):
                            self.assertAlmostEqual(got, want, delta=TOLERANCE, msg=f"alternatives of step {step}")


if __name__ == "__main__":
    unittest.main()
