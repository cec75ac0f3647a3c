"""Workers with the CUDA backend, on the test runtime (tests/host_cuda) in the place of a GPU.

Greedy tokens are those of the CPU's f32 arithmetic; everything else that is compared has to be equal to the bit: one
worker against prefill and decode apart, alone against beside others, cached against computed, preempted or not.
"""
import contextlib
import os
import subprocess
import unittest

import grpc

from cluster import BUILD, NO_MOVES, Cluster, Server, wait_until
from sluice_client import Background

PLUGIN = BUILD / "backend_cuda_host.so"
CUDA = ["--backend", "cuda", "--cuda-plugin", str(PLUGIN)]
GREEDY = {"max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
NEAR = 0.1  # in log-probabilities: what rounding to bf16 does to this random model
# Inside a block, at its border, behind it, and more than a span of keys (256).
PROMPTS = [[5 + i * 7 % 200 for i in range(length)] for length in (3, 16, 33, 270)]


def facts(answer):
    return [(c.token_ids, c.logprobs, c.top, c.text, c.finish_reason) for c in answer.all_choices()]


@contextlib.contextmanager
def environment(**variables):
    """Of servers that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cluster(**wanted):
    return Cluster(worker_flags=[*CUDA, *wanted.pop("flags", ["--kv-blocks", "200"])],
                   router_flags=wanted.pop("router_flags", NO_MOVES), **wanted)


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Cluster(workers=1, worker_flags=["--backend", "cpu", "--compute", "f32"]) as cpu:
            cls.cpu = [cpu.client.generate(prompt, **GREEDY) for prompt in PROMPTS]
        with cluster(workers=1) as one:
            cls.alone = [facts(one.client.generate(prompt, **GREEDY)) for prompt in PROMPTS]
            cls.sampled = facts(one.client.generate(PROMPTS[1], n=3, seed=9, temperature=1.0, max_tokens=8,
                                                    ignore_eos=True, logprobs=1))
            again = [one.client.generate(prompt, **GREEDY) for prompt in PROMPTS]
            cls.cached = [facts(answer) for answer in again]
            cls.hits = [answer.usage.cached_tokens for answer in again]

    def check_all(self, client, what):
        for prompt, alone in zip(PROMPTS, self.alone, strict=True):
            self.assertEqual(facts(client.generate(prompt, **GREEDY)), alone, f"{what}, {len(prompt)} tokens")
        beside = [Background(client, prompt, **GREEDY) for prompt in PROMPTS]
        for stream, prompt, alone in zip(beside, PROMPTS, self.alone, strict=True):
            stream.join()
            self.assertIsNone(stream.error, f"{what}, {len(prompt)} tokens beside others")
            self.assertEqual(facts(stream.answer), alone, f"{what}, {len(prompt)} tokens beside others")
        self.assertEqual(facts(client.generate(PROMPTS[1], n=3, seed=9, temperature=1.0, max_tokens=8, ignore_eos=True,
                                               logprobs=1)), self.sampled, f"{what}, sampled")

    def test_greedy_tokens_are_those_of_the_cpu(self):
        whole = 0
        for answer, (choice,), prompt in zip(self.cpu, self.alone, PROMPTS, strict=True):
            tokens, logprobs = choice[:2]
            for i, (want, best) in enumerate(zip(answer.token_ids, answer.logprobs, strict=True)):
                what = f"token {i} after {len(prompt)}"
                if tokens[i] != want:  # only where the two were as good as equal, and then the texts part
                    self.assertLess(best - dict(answer.top[i]).get(tokens[i], -99), NEAR, what)
                    break
                self.assertLess(abs(logprobs[i] - best), NEAR, what)
            else:
                whole += 1
        self.assertGreaterEqual(whole, len(PROMPTS) - 1)

    def test_cached_prefixes_have_the_same_bits(self):
        self.assertEqual(self.cached, self.alone)
        self.assertEqual([hit >= 16 for hit in self.hits], [len(prompt) > 16 for prompt in PROMPTS])

    def test_choices_differ_and_hold(self):
        self.assertEqual(len({tuple(choice[0]) for choice in self.sampled}), 3)

    def test_one_and_one(self):
        with cluster(workers=0, prefill=1, decode=1) as split:
            baseline = split.blocks_free()
            self.check_all(split.client, "1 + 1")
            wait_until(lambda: split.blocks_free() == baseline, 2, "blocks come back")
            split.check_alive()

    def test_two_and_two_over_tcp(self):
        with cluster(workers=0, prefill=2, decode=2, flags=["--kv-blocks", "200", "--kv-channel", "tcp"]) as split:
            self.check_all(split.client, "2 + 2")
            split.check_alive()

    def test_without_graphs(self):
        with cluster(workers=1, flags=["--kv-blocks", "200", "--no-cuda-graphs"]) as one:
            self.check_all(one.client, "launch by launch")

    def test_int8_kv(self):
        """Other bits than with bf16, but near; and one worker has those of two."""
        flags = ["--kv-blocks", "200", "--kv-dtype", "int8"]
        with cluster(workers=1, flags=flags) as one:
            alone = [one.client.generate(prompt, **GREEDY) for prompt in PROMPTS]
        self.assertNotEqual([facts(answer) for answer in alone], self.alone)
        for answer, ((_, logprobs, *_),) in zip(alone, self.alone, strict=True):
            self.assertLess(abs(answer.logprobs[0] - logprobs[0]), 3 * NEAR)
        with cluster(workers=0, prefill=1, decode=1, flags=flags) as split:
            again = [split.client.generate(prompt, **GREEDY) for prompt in PROMPTS]
        self.assertEqual([facts(answer) for answer in again], [facts(answer) for answer in alone])

    def test_preempted(self):
        # Four contexts of up to 282 tokens want 43 blocks.
        with cluster(workers=1, flags=["--kv-blocks", "24", "--max-context", "300"]) as scarce:
            self.check_all(scarce.client, "24 blocks")
            scarce.check_alive()


# Of every kind that the sampler knows: a device does most of them, and what it leaves to the host must fit in.
SAMPLED = [
    {"temperature": 0, "logprobs": 0},
    {"temperature": 0, "logprobs": 20, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "seed": 4, "logprobs": 2},
    {"temperature": 1.5, "top_p": 0.8, "seed": 5, "presence_penalty": 1.0, "logprobs": 1},
    {"temperature": 2.0, "min_p": 0.05, "seed": 6, "logit_bias": {5: 3.0, 6: -100.0}},
    {"temperature": 1.0, "n": 3, "seed": 9, "logprobs": 1, "top_k": 150},
    {"temperature": 1.0, "n": 2, "seed": 10, "repetition_penalty": 0.8, "min_tokens": 4, "stop_token_ids": [5, 9]},
    {"temperature": 0, "prompt_logprobs": 3, "logprobs": 3, "max_tokens": 1},
]


def sampled(client):
    """With answers that repeat themselves, so that drafts hold."""
    answers = []
    for case, fields in enumerate(SAMPLED):
        for prompt in (PROMPTS[1], [7, 8, 9, 10] * 9):
            answer = client.generate(prompt, **{"max_tokens": 10, "ignore_eos": "stop_token_ids" not in fields} | fields)
            answers.append((case, facts(answer), answer.prompt_logprobs, answer.prompt_top))
    return answers


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CudaSamplingTest(unittest.TestCase):
    """Sampling on the device and on the host: the same bits, in any split; and how much comes to the host."""

    @classmethod
    def setUpClass(cls):
        with cluster(workers=1, flags=["--kv-blocks", "200", "--no-device-sampling"]) as one:
            cls.on_host = sampled(one.client)
            cls.logits_bytes = cls.bytes_per_row(one)

    @staticmethod
    def bytes_per_row(one):
        """Of greedy decode rows without log-probabilities."""
        def counters():
            return one.client.state().workers[0].engine

        fields = {"max_tokens": 30, "temperature": 0, "ignore_eos": True}
        one.client.generate(PROMPTS[0], **fields)
        wait_until(lambda: counters().steps > 0, 5, "a report")
        before = counters()
        one.client.generate(PROMPTS[0], **fields)
        wait_until(lambda: counters().rows >= before.rows + 30, 5, "a report")
        after = counters()
        return (after.bytes_to_host - before.bytes_to_host) / (after.rows - before.rows)

    def check(self, client, what):
        for (case, *want), (_, *got) in zip(self.on_host, sampled(client), strict=True):
            self.assertEqual(got, want, f"{what}: {SAMPLED[case]}")

    def test_on_the_device(self):
        with cluster(workers=1) as one:
            self.check(one.client, "on the device")
            self.assertLessEqual(self.bytes_per_row(one), 8, "a token and its log-probability are 8 bytes")
        self.assertGreater(self.logits_bytes, 200 * 4, "which all logits of a row are more than")

    def test_without_graphs_and_drafts(self):
        with cluster(workers=1, flags=["--kv-blocks", "200", "--no-cuda-graphs", "--drafts", "0"]) as one:
            self.check(one.client, "launch by launch, without drafts")

    def test_one_and_one(self):
        with cluster(workers=0, prefill=1, decode=1) as split:
            self.check(split.client, "1 + 1")

    def test_beside_others(self):
        with cluster(workers=1) as one:
            beside = [Background(one.client, PROMPTS[1], **{"max_tokens": 10, "ignore_eos": "stop_token_ids" not in fields}
                                 | fields) for fields in SAMPLED]
            for case, stream in enumerate(beside):
                stream.join()
                self.assertIsNone(stream.error, SAMPLED[case])
                self.assertEqual(facts(stream.answer), self.on_host[2 * case][1], f"beside others: {SAMPLED[case]}")


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CudaErrorsTest(unittest.TestCase):
    def fails(self, flags, **variables):
        """Words of a worker that does not start."""
        with environment(**variables), Cluster(workers=0) as empty:
            worker = Server([BUILD / "sluice_decode", "--role", "both", "--model", empty.model, *flags],
                            empty.folder / "failing.log")
            self.assertNotEqual(worker.process.wait(60), 0)
            return worker.text()

    def test_what_is_missing_is_named(self):
        self.assertIn("the CUDA backend is not at /nowhere/backend_cuda.so",
                      self.fails(["--backend", "cuda", "--cuda-plugin", "/nowhere/backend_cuda.so"]))
        self.assertIn("no usable GPU: cudaErrorNoDevice", self.fails(CUDA, HOST_CUDA_DEVICES="0"))
        self.assertIn("there is no GPU 3: this machine shows 1", self.fails([*CUDA, "--device", "3"]))
        self.assertIn("--compute: int8 is for CPUs", self.fails([*CUDA, "--compute", "int8"]))
        self.assertIn("of GPU memory", self.fails([*CUDA, "--kv-blocks", "20000"], HOST_CUDA_MEMORY=str(64 << 20)))

    def test_a_machine_without_a_gpu_computes_on_its_cpu(self):
        with Cluster(workers=1) as plain:
            self.assertIn("int8h", plain.workers[0].ready)

    def test_a_gpu_that_fails_ends_its_worker_and_the_request_says_so(self):
        with environment(HOST_CUDA_FAIL="launch:60=cudaErrorLaunchFailure", HOST_CUDA_ON_ERROR="report"):
            broken = cluster(workers=1, flags=["--kv-blocks", "200", "--no-profile"])  # or it fails at its start
            broken.__enter__()
        with contextlib.closing(broken):
            with self.assertRaises(grpc.RpcError) as raised:
                broken.client.generate(PROMPTS[2], **GREEDY)
            self.assertIn(raised.exception.code(), (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE))
            self.assertNotEqual(broken.workers[0].process.wait(20), 0)
            self.assertIn("cudaErrorLaunchFailure", broken.workers[0].text())


if __name__ == "__main__":
    unittest.main()
