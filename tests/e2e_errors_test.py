"""Bad input gets one clear error that names the field, and nothing dies of it."""
import math
import random
import unittest

import grpc

from cluster import Cluster

NAN, INF = math.nan, math.inf


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, wire_type, payload):
    return varint(number << 3 | wire_type) + payload


def length_delimited(number, payload):
    return field(number, 2, varint(len(payload)) + payload)


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client
        cls.context = cls.client.state().context_length
        cls.pids = (cls.cluster.router.process.pid, cls.cluster.workers[0].process.pid)

    def tearDown(self):
        self.assertIsNone(self.cluster.router.process.poll())
        self.assertIsNone(self.cluster.workers[0].process.poll())
        self.cluster.check_alive()

    def refused(self, call, name):
        with self.assertRaises(grpc.RpcError) as raised:
            list(call)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT, raised.exception.details())
        self.assertRegex(raised.exception.details(), rf"\b({name})\b")
        self.assertNotIn("\n", raised.exception.details())

    def test_prompts(self):
        for prompt in (None, "", []):
            with self.subTest(prompt=prompt):
                self.refused(self.client.stream(prompt, max_tokens=1), "prompt|text|token_ids")
        for ids in ([-1], [10**9], [1, 2, 2**31 - 1]):
            with self.subTest(ids=ids):
                self.refused(self.client.stream(ids, max_tokens=1), "token_ids")
        too_long = [5] * (self.context + 1)
        self.refused(self.client.stream(too_long, max_tokens=1), "prompt|token_ids")

    def test_context(self):
        for prompt, max_tokens in (("ab", self.context), ("ab", 2**31 - 1), ([5] * self.context, 1)):
            with self.subTest(max_tokens=max_tokens):
                self.refused(self.client.stream(prompt, max_tokens=max_tokens), "max_tokens|prompt|token_ids")
        # The last one that fits does.
        answer = self.client.generate([5] * (self.context - 1), max_tokens=1, ignore_eos=True)
        self.assertEqual(len(answer.token_ids), 1)

    def test_sampling_parameters(self):
        cases = {
            "temperature": [-0.1, NAN, INF, -INF], "top_p": [0.0, -0.5, 1.01, NAN], "top_k": [-2, -2**31],
            "min_p": [-0.1, 1.1, NAN], "repetition_penalty": [0.0, -1.0, NAN, INF],
            "presence_penalty": [-2.1, 2.1, NAN], "frequency_penalty": [-2.1, 2.1, NAN],
            "max_tokens": [-1, -2**31], "min_tokens": [-1], "logprobs": [-1, 2**31 - 1], "n": [0, -1],
            "prompt_logprobs": [-1, 21, 2**31 - 1],
            "timeout_ms": [-1], "stop": [[""]], "stop_token_ids": [[-1], [10**9]],
            "logit_bias": [{5: NAN}, {5: 100.5}, {-1: 1.0}, {10**9: 1.0}],
        }
        for name, values in cases.items():
            for value in values:
                with self.subTest(name, value=value):
                    fields = {"max_tokens": 2, name: value}
                    self.refused(self.client.stream("ab", **fields), name)

    def test_wrong_wire_type(self):
        prompt = length_delimited(3, b"ab")
        cases = {
            "temperature": length_delimited(5, field(1, 0, varint(1))),        # float as varint
            "max_tokens": length_delimited(5, field(13, 5, b"\0\0\x80\x3f")),  # int32 as float
            "sampling": field(5, 0, varint(7)),                                # message as varint
        }
        for name, data in cases.items():
            with self.subTest(name):
                self.refused(self.client.raw_generate(prompt + data, timeout=10), name)
        with self.subTest("text"):
            self.refused(self.client.raw_generate(field(3, 0, varint(7)), timeout=10), "text|prompt")

    def test_noise(self):
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        for i in range(200):
            data = bytearray(length_delimited(3, b"ab") + length_delimited(5, field(13, 0, varint(2))))
            for _ in range(rng.randrange(1, 5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                list(self.client.raw_generate(bytes(data), timeout=10))
            except grpc.RpcError as error:
                self.assertIn(error.code(), (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL,
                                             grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED),
                              f"seed {seed}, message {i}: {error.details()}")

    def test_extremes_that_are_allowed(self):
        for fields in ({"temperature": 1e-30}, {"temperature": 1e30}, {"top_p": 1e-30, "temperature": 1.0},
                       {"top_k": 10**9, "temperature": 1.0}, {"top_k": -1, "temperature": 1.0},
                       {"temperature": 0.0, "top_p": 0.5}):
            with self.subTest(**fields):
                answer = self.client.generate("ab", max_tokens=3, ignore_eos=True, logprobs=1, **fields)
                self.assertEqual(len(answer.token_ids), 3)
                self.assertTrue(all(math.isfinite(x) and x <= 0 for x in answer.logprobs), answer.logprobs)


if __name__ == "__main__":
    unittest.main()
