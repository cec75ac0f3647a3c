"""Every (ranks that prefill, ranks that decode) in {1, 2, 3, 4}^2 x KV heads 1, 2, 3, 8, as processes: the tokens and bits
of one worker that does both, with a prefix cached at P, at D, at both, at neither; the bytes that landed are the bytes
that were sent, and as many as were due.

By default half of the pairs for each number of heads, which ones alternates; SLUICE_TEST_ALL=1 runs all 64. In f32, whose
sums nothing hides; SLUICE_TEST_COMPUTE names another arithmetic.
"""
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

from cluster import BUILD, Cluster, wait_until

ALL = os.environ.get("SLUICE_TEST_ALL") == "1"
COMPUTE = os.environ.get("SLUICE_TEST_COMPUTE", "f32")
LAYERS, HEAD_DIM, BLOCK = 3, 32, 16
FLAGS = ["--threads", 1, "--kv-blocks", 64, "--compute", COMPUTE, "--max-context", 512]
RANKS = (1, 2, 3, 4)
SHARED = 48  # tokens that prompts begin with: whole blocks
SEED = int(os.environ.get("SLUICE_TEST_SEED") or random.randrange(1 << 30))


def fields(i):
    return {"max_tokens": 6, "ignore_eos": True, "logprobs": 1, "seed": i, "temperature": 0.8 * (i % 2)}


def prompt(rng, length):
    return [rng.randrange(3, 250) for _ in range(length)]


class AnyRanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-ranks-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def block_bytes(self, heads):
        return LAYERS * 2 * heads * HEAD_DIM * BLOCK * (4 if COMPUTE == "f32" else 2)

    def ask(self, cluster, tokens, i):
        answer = cluster.client.generate(tokens, timeout=60, **fields(i))
        return (answer.token_ids, answer.logprobs, answer.text), answer

    def pair(self, heads, model, asked, alone, prefill, decode):
        with Cluster(workers=0, prefill=1, decode=1, model=model, worker_flags=FLAGS,
                     prefill_flags=["--tp", prefill, "--max-step-tokens", 32, "--max-seqs", 8],
                     decode_flags=["--tp", decode]) as cluster:
            moved, hits = 0, {}
            for i, (kind, tokens) in enumerate(asked):
                if kind == "D":  # P's cache is full of other prompts by then
                    rng = random.Random(i)
                    for _ in range(4):
                        cluster.client.generate(prompt(rng, 400), max_tokens=1, timeout=60)
                if kind == "P":  # one token needs no decode worker
                    cluster.client.generate(tokens[:-9], max_tokens=1, ignore_eos=True, timeout=60)
                got, answer = self.ask(cluster, tokens, i)
                self.assertEqual(got, alone[i], kind)
                blocks = answer.timing.transfer_bytes // self.block_bytes(heads)
                self.assertEqual(answer.timing.transfer_bytes, blocks * self.block_bytes(heads))
                at_decode = -(-len(tokens) // BLOCK) - blocks
                hits[kind] = (answer.usage.cached_tokens > 0, at_decode > 0)
                moved += answer.timing.transfer_bytes
            self.assertEqual(hits, {"none": (False, False), "P": (True, False), "D": (False, True), "both": (True, True)})

            def flows():
                found = [(w.kv_flows[0].bytes, w.kv_flows[0].transfers) for w in cluster.client.state().workers
                         if w.kv_flows]
                return found if [f[1] for f in found] == [len(asked)] * 2 else None
            sent, landed = wait_until(flows, 10, cluster.client.state)
            self.assertEqual((sent[0], landed[0]), (moved, moved))

    def heads(self, heads):
        model = self.folder / f"heads-{heads}.gguf"
        subprocess.run([BUILD / "tests/make_tiny_model", model, "--layers", str(LAYERS), "--heads",
                        "9" if heads == 3 else "8", "--kv-heads", str(heads), "--head-dim", str(HEAD_DIM), "--ffn", "256",
                        "--context", "512"], check=True, capture_output=True)
        rng = random.Random(SEED + heads)
        shared = prompt(rng, SHARED)
        asked = [("none", prompt(rng, 97)), ("P", prompt(rng, 75)), ("both", None), ("D", None)]
        asked[0] = ("none", shared + asked[0][1][:49])
        asked[2] = ("both", shared + prompt(rng, 33))  # of the first one, at both
        asked[3] = ("D", shared + prompt(rng, 64))
        with Cluster(model=model, worker_flags=FLAGS) as both:
            alone = [self.ask(both, tokens, i)[0] for i, (_, tokens) in enumerate(asked)]
        ran = 0
        for prefill in RANKS:
            for decode in RANKS:
                if not ALL and (prefill + decode + heads) % 2:
                    continue
                with self.subTest(heads=heads, prefill=prefill, decode=decode):
                    self.pair(heads, model, asked, alone, prefill, decode)
                    ran += 1
        print(f"{heads} KV heads: {ran} pairs of ranks", flush=True)

    def test_1_head(self):
        self.heads(1)

    def test_2_heads(self):
        self.heads(2)

    def test_3_heads(self):
        self.heads(3)

    def test_8_heads(self):
        self.heads(8)


if __name__ == "__main__":
    unittest.main()
