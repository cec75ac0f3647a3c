"""Workers with the CUDA backend in its other arithmetics, on the test runtime (tests/host_cuda) in the place of a GPU.

Products by cuBLASLt depend on the batch, so of those the tokens alone are compared, with those of the CPU's f32 arithmetic.
"""
import unittest

import grpc

from cluster import BUILD, Cluster, Server, wait_until
from e2e_cuda_test import CUDA, GREEDY, NEAR, PLUGIN, PROMPTS, cluster, environment, facts
from sluice_client import Background


def fails(flags, **variables):
    """Words of a worker that does not start."""
    with environment(**variables), Cluster(workers=0) as empty:
        worker = Server([BUILD / "sluice_decode", "--role", "both", "--model", empty.model, *CUDA, *flags],
                        empty.folder / "failing.log")
        assert worker.process.wait(60) != 0
        return worker.text()


class Near(unittest.TestCase):
    """Greedy tokens of the CPU's f32 arithmetic."""
    near = NEAR

    @classmethod
    def setUpClass(cls):
        with Cluster(workers=1, worker_flags=["--backend", "cpu", "--compute", "f32"]) as cpu:
            cls.cpu = [cpu.client.generate(prompt, **GREEDY) for prompt in PROMPTS]

    def check_near(self, answers, what):
        """Equal, but where two tokens were as good as equal; then the texts part. All but one are equal to the end."""
        whole = 0
        for want, got, prompt in zip(self.cpu, answers, PROMPTS, strict=True):
            for i, (token, best) in enumerate(zip(want.token_ids, want.logprobs, strict=True)):
                where = f"{what}: token {i} after {len(prompt)}"
                if got.token_ids[i] != token:
                    self.assertLess(best - dict(want.top[i]).get(got.token_ids[i], -99), self.near, where)
                    break
                self.assertLess(abs(got.logprobs[i] - best), self.near, where)
            else:
                whole += 1
        self.assertGreaterEqual(whole, len(PROMPTS) - 1, what)

    def check_alone_and_beside(self, client, what):
        self.check_near([client.generate(prompt, **GREEDY) for prompt in PROMPTS], what)
        beside = [Background(client, prompt, **GREEDY) for prompt in PROMPTS]
        for stream in beside:
            stream.join()
            self.assertIsNone(stream.error, what)
        self.check_near([stream.answer for stream in beside], f"{what}, beside others")


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CublasLtTest(Near):
    """--gemm cublaslt, from two rows on, so that decode steps are among those that it multiplies."""
    FLAGS = ["--kv-blocks", "200", "--gemm", "cublaslt", "--gemm-rows", "2"]

    def test_greedy_tokens_are_those_of_the_cpu(self):
        with cluster(workers=1, flags=self.FLAGS) as one:
            self.assertIn("numerics=cuda-bf16lt.1", one.workers[0].ready)
            # Twice: a step of so many rows is recorded when it comes again.
            for what in ("launched", "recorded"):
                self.check_alone_and_beside(one.client, what)

    def test_one_and_one_without_graphs(self):
        with cluster(workers=0, prefill=1, decode=1, flags=[*self.FLAGS, "--no-cuda-graphs"]) as split:
            baseline = split.blocks_free()
            self.check_alone_and_beside(split.client, "1 + 1")
            wait_until(lambda: split.blocks_free() == baseline, 2, "blocks come back")

    def test_does_not_pair_with_our_own_products(self):
        with Cluster(workers=0, worker_flags=[*CUDA, "--kv-blocks", "200"], prefill=1, decode=1,
                     decode_flags=["--gemm", "cublaslt"]) as unlike:
            with self.assertRaises(grpc.RpcError) as raised:
                unlike.client.generate(PROMPTS[1], timeout=5, **GREEDY)
            self.assertIn(raised.exception.code(), (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE,
                                                    grpc.StatusCode.DEADLINE_EXCEEDED))

    def test_a_library_that_is_missing_is_named(self):
        absent = ["--cublaslt-library", "/nowhere/libcublasLt.so"]
        self.assertIn("cuBLASLt cannot be loaded (/nowhere/libcublasLt.so", fails(["--gemm", "cublaslt", *absent]))
        self.assertIn("it is no cuBLASLt", fails(["--gemm", "cublaslt", "--cublaslt-library", "libc.so.6"]))
        with cluster(workers=1) as own:
            want = facts(own.client.generate(PROMPTS[2], **GREEDY))
        with cluster(workers=1, flags=["--kv-blocks", "200", "--gemm", "auto", *absent]) as one:
            self.assertIn("numerics=cuda-bf16.1", one.workers[0].ready)
            self.assertEqual(one.workers[0].text().count("products are our own: cuBLASLt cannot be loaded"), 1)
            self.assertEqual(facts(one.client.generate(PROMPTS[2], **GREEDY)), want)

    def test_a_library_that_fails_ends_its_worker_and_the_log_says_why(self):
        self.assertIn("starting cuBLASLt", fails(self.FLAGS, HOST_CUDA_FAIL="cublasLtCreate:1=CUBLAS_STATUS_NOT_INITIALIZED"))
        with environment(HOST_CUDA_FAIL="cublasLtMatmul:5=CUBLAS_STATUS_EXECUTION_FAILED", HOST_CUDA_ON_ERROR="report"):
            broken = cluster(workers=1, flags=[*self.FLAGS, "--no-profile"])
            broken.__enter__()
        try:
            with self.assertRaises(grpc.RpcError) as raised:
                broken.client.generate(PROMPTS[2], **GREEDY)
            self.assertIn(raised.exception.code(), (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE))
            self.assertNotEqual(broken.workers[0].process.wait(20), 0)
            self.assertRegex(broken.workers[0].text(), "cuBLASLt's product: the function failed to launch")
        finally:
            broken.close()


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class Int8WeightsTest(Near):
    """--weights int8: near the CPU's f32, and the same bits however a request is computed."""
    FLAGS = ["--kv-blocks", "200", "--weights", "int8"]
    near = 3 * NEAR  # of a random model whose every weight is rounded

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with cluster(workers=1, flags=cls.FLAGS) as one:
            cls.ready = one.workers[0].ready
            cls.answers = [one.client.generate(prompt, **GREEDY) for prompt in PROMPTS]
            cls.alone = [facts(answer) for answer in cls.answers]
            cls.cached = [facts(one.client.generate(prompt, **GREEDY)) for prompt in PROMPTS]

    def check_same(self, client, what):
        for prompt, alone in zip(PROMPTS, self.alone, strict=True):
            self.assertEqual(facts(client.generate(prompt, **GREEDY)), alone, f"{what}, {len(prompt)} tokens")
        beside = [Background(client, prompt, **GREEDY) for prompt in PROMPTS]
        for stream, alone in zip(beside, self.alone, strict=True):
            stream.join()
            self.assertIsNone(stream.error, what)
            self.assertEqual(facts(stream.answer), alone, f"{what}, beside others")

    def test_near_the_cpu(self):
        self.assertIn("numerics=cuda-bf16w8.1", self.ready)
        for want, got in zip(self.cpu, self.answers, strict=True):
            best = dict(want.top[0])
            self.assertIn(got.token_ids[0], best)
            self.assertLess(abs(got.logprobs[0] - best[got.token_ids[0]]), self.near)

    def test_cached_prefixes_have_the_same_bits(self):
        self.assertEqual(self.cached, self.alone)

    def test_one_and_one(self):
        with cluster(workers=0, prefill=1, decode=1, flags=self.FLAGS) as split:
            self.check_same(split.client, "1 + 1")

    def test_without_graphs(self):
        with cluster(workers=1, flags=[*self.FLAGS, "--no-cuda-graphs"]) as one:
            self.check_same(one.client, "launch by launch")

    def test_two_ranks(self):
        with environment(HOST_CUDA_DEVICES="2"), cluster(workers=1, flags=[*self.FLAGS, "--tp", "2"]) as one:
            self.check_same(one.client, "two ranks")

    def test_what_does_not_go_together_is_refused(self):
        self.assertIn("cublaslt does not multiply", fails([*self.FLAGS, "--gemm", "cublaslt"]))


if __name__ == "__main__":
    unittest.main()
