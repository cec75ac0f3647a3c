"""The real model against the reference of transformers in float32 (tests/golden/golden_smollm2.json, `about`).

Prompt ids are owed exactly, greedy ids up to and including the end-of-sequence token (the reference went on after it),
log-probabilities within 2e-3.
"""
import json
import pathlib
import re
import unittest

from cluster import Cluster, real_model
from sluice_client import LENGTH, Background

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden/golden_smollm2.json").read_text(encoding="utf-8"))
TOLERANCE = 2e-3
STEPS = GOLDEN["n"]


def owed(prompt):
    """How many tokens must be equal."""
    return STEPS if prompt["eos_at"] is None else prompt["eos_at"] + 1


class GoldenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(model=real_model(), worker_flags=["--compute", "f32"])
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)

    def check(self, prompt, prompt_ids, token_ids, logprobs):
        n = owed(prompt)
        self.assertEqual(prompt_ids, prompt["ids_hf"])
        self.assertEqual(len(token_ids), STEPS)
        self.assertEqual(token_ids[:n], prompt["output_ids"][:n])
        for step in range(n):
            self.assertAlmostEqual(logprobs[step], prompt["top5"][step][0][1], delta=TOLERANCE, msg=f"step {step}")

    def test_alone_and_all_at_once(self):
        client = self.cluster.client
        fields = {"max_tokens": STEPS, "ignore_eos": True, "logprobs": 5}
        alone = []
        for prompt in GOLDEN["prompts"]:
            with self.subTest(prompt["name"]):
                answer = client.generate(prompt["text"], **fields)
                self.check(prompt, answer.prompt_ids, answer.token_ids, answer.logprobs)
                self.assertEqual(answer.finish_reason, LENGTH)
                for step in range(owed(prompt)):
                    for (_, got), (_, want) in zip(answer.top[step], prompt["top5"][step], strict=True):
                        self.assertAlmostEqual(got, want, delta=TOLERANCE, msg=f"alternatives of step {step}")
                alone.append(answer)
        calls = [Background(client, prompt["text"], **fields) for prompt in GOLDEN["prompts"]]
        for prompt, call, one in zip(GOLDEN["prompts"], calls, alone, strict=True):
            with self.subTest(f"{prompt['name']} among {len(calls)}"):
                together = call.join()
                self.assertEqual(together.token_ids, one.token_ids)
                self.assertEqual(together.logprobs, one.logprobs)  # bit for bit

    def test_prefill_and_decode_apart(self):
        fields = {"max_tokens": STEPS, "ignore_eos": True, "logprobs": 5}
        with Cluster(model=real_model(), workers=0, prefill=1, decode=1, worker_flags=["--compute", "f32"]) as cluster:
            calls = [Background(cluster.client, prompt["text"], **fields) for prompt in GOLDEN["prompts"]]
            for prompt, call in zip(GOLDEN["prompts"], calls, strict=True):
                with self.subTest(prompt["name"]):
                    answer = call.join()
                    self.check(prompt, answer.prompt_ids, answer.token_ids, answer.logprobs)

    def test_command_line(self):
        prompt = GOLDEN["prompts"][0]
        run = self.cluster.cli("generate", "--raw", "--json", "--ignore-eos", "--max-tokens", str(STEPS), "--", prompt["text"])
        self.assertEqual(run.returncode, 0, run.stderr)
        out = json.loads(run.stdout)
        self.check(prompt, out["prompt_token_ids"], out["token_ids"], out["logprobs"])
        self.assertEqual(out["text"], re.sub(r"<\|im_(start|end)\|>", "", prompt["output_text"]))  # control tokens are silent
        self.assertEqual(out["finish_reason"], "length")
        self.assertEqual(out["usage"]["completion_tokens"], STEPS)

    def test_end_of_sequence_ends_the_answer(self):
        prompt = next(p for p in GOLDEN["prompts"] if p["eos_at"] is not None)
        answer = self.cluster.client.generate(prompt["text"], max_tokens=STEPS)
        self.assertEqual(answer.token_ids, prompt["output_ids"][:owed(prompt)])
        self.assertNotIn("<|im_end|>", answer.text)


if __name__ == "__main__":
    unittest.main()
