"""Streams over reflection with the tiny model: what comes, in which order, and the same alone as among sixteen."""
import json
import random
import unittest

import grpc

from cluster import Cluster
from sluice_client import LENGTH, Background

SEED = random.randrange(1 << 30)


class StreamTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.cluster = Cluster(workers=2)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client

    def test_shape_of_the_stream(self):
        responses = list(self.client.stream("hello", max_tokens=10, ignore_eos=True, logprobs=0, seed=5))
        self.assertTrue(responses[0].HasField("prompt"))
        self.assertEqual(responses[0].prompt.seed, 5)
        self.assertTrue(responses[-1].HasField("usage"))
        self.assertTrue(responses[-1].HasField("timing"))
        self.assertEqual(len({r.request_id for r in responses}), 1)
        finishes = [c.finish_reason for r in responses for c in r.choices if c.finish_reason]
        self.assertEqual(finishes, [LENGTH])
        self.assertEqual(responses[-1].usage.completion_tokens, 10)
        self.assertEqual(responses[-1].usage.prompt_tokens, len(responses[0].prompt.token_ids))
        names = [event.name for event in responses[-1].timing.timeline]
        self.assertIn("first_token", names)

    def test_sixteen_at_once_equal_each_alone(self):
        rng = random.Random(SEED)
        asked = []
        for i in range(16):
            prompt = [rng.randrange(3, 200) for _ in range(rng.choice([1, 2, 15, 16, 17, 33, 40]))]
            fields = {"max_tokens": rng.choice([1, 2, 16, 40]), "ignore_eos": True, "logprobs": 2, "seed": i}
            if i % 2:
                fields |= {"temperature": 0.5 + rng.random(), "top_p": 0.9, "top_k": 50}
            asked.append((prompt, fields))
        alone = [self.client.generate(prompt, **fields) for prompt, fields in asked]
        for answer, (prompt, fields) in zip(alone, asked, strict=True):
            self.assertEqual(len(answer.token_ids), fields["max_tokens"])
            self.assertEqual(answer.prompt_ids, prompt)
        for _ in range(3):
            calls = [Background(self.client, prompt, **fields) for prompt, fields in asked]
            for call, one in zip(calls, alone, strict=True):
                together = call.join()
                self.assertIsNone(call.error)
                self.assertEqual(together.token_ids, one.token_ids)
                self.assertEqual(together.logprobs, one.logprobs)  # bit for bit
                self.assertEqual(together.top, one.top)
                self.assertEqual(together.text, one.text)

    def test_seeds_decide(self):
        fields = {"max_tokens": 24, "ignore_eos": True, "temperature": 1.5}
        one = self.client.generate("abc", seed=1, **fields)
        self.assertEqual(self.client.generate("abc", seed=1, **fields).token_ids, one.token_ids)
        self.assertNotEqual(self.client.generate("abc", seed=2, **fields).token_ids, one.token_ids)
        drawn = self.client.generate("abc", **fields)
        self.assertEqual(self.client.generate("abc", seed=drawn.seed, **fields).token_ids, drawn.token_ids)

    def test_stop_string_ends_before_the_match(self):
        free = self.client.generate("abc", max_tokens=40, ignore_eos=True, seed=3, temperature=1.0)
        middle = len(free.text) // 2
        stop = free.text[middle:middle + 3]
        cut = free.text.index(stop)
        stopped = self.client.generate("abc", max_tokens=40, ignore_eos=True, seed=3, temperature=1.0, stop=[stop])
        self.assertEqual(stopped.text, free.text[:cut])

    def test_health_and_command_line(self):
        health = self.client.channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=lambda data: data,
            response_deserializer=lambda data: data)
        self.assertEqual(health(b"", timeout=5), b"\x08\x01")  # SERVING

        want = self.client.generate("hello", max_tokens=12, ignore_eos=True)
        run = self.cluster.cli("generate", "--raw", "--max-tokens", "12", "--ignore-eos", "--stats", "hello")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.rstrip("\n"), want.text.rstrip("\n"))
        self.assertIn("TTFT", run.stderr)
        run = self.cluster.cli("generate", "--raw", "--max-tokens", "12", "--ignore-eos", "--json", "-", input="hello")
        out = json.loads(run.stdout)
        self.assertEqual(out["token_ids"], want.token_ids)
        self.assertEqual(len(out["logprobs"]), 12)
        run = self.cluster.cli("generate", "--temperature", "-1", "hello")
        self.assertEqual(run.returncode, 2)
        self.assertIn("temperature", run.stderr)
        run = self.cluster.cli("status", "--json")
        workers = json.loads(run.stdout)["workers"]
        self.assertEqual([w["state"] for w in workers], ["active", "active"])
        self.assertEqual({w["pid"] for w in workers}, {w.process.pid for w in self.cluster.workers})
        for worker in workers:
            self.assertLessEqual(
                {"role", "pid", "port", "state", "blocks_total", "blocks_free", "running", "waiting"}, worker.keys())
            self.assertEqual(worker["role"], "both")

    def test_deadline(self):
        with self.assertRaises(grpc.RpcError) as raised:
            list(self.client.stream("abc", timeout=0.0001, max_tokens=50, ignore_eos=True))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.cluster.check_alive()


if __name__ == "__main__":
    unittest.main()
