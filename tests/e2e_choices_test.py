"""Several answers to one prompt, on real processes: each is what it would be wherever it is computed, bit for bit.

The same requests are asked of `both`, of 1 prefill + 1 decode worker and of 2 + 2; then over HTTP and by the CLI.
"""
import http.client
import json
import unittest

import grpc

from cluster import Cluster, wait_until
from sluice_client import LENGTH, STOP, Background

N = 4
BLOCK = 16
SAMPLED = {"temperature": 1.0, "seed": 14, "logprobs": 2, "n": N}
BOUND = 2  # seconds, promised: the blocks of a request that ended are back


def requests():
    """(name, prompt, fields); prompts end inside a block, at its end, and just behind it."""
    asked = [(f"{length} tokens", [5 + i * 7 % 200 for i in range(length)], {"max_tokens": 24, "ignore_eos": True})
             for length in (3, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3)]
    asked.append(("one token each", [9, 8, 7], {"max_tokens": 1, "ignore_eos": True}))
    asked.append(("two tokens each", [9, 8, 7], {"max_tokens": 2, "ignore_eos": True}))
    return [(name, prompt, {**SAMPLED, **fields}) for name, prompt, fields in asked]


def facts(answer):
    """What must be the same bit for bit, by choice."""
    return [(c.token_ids, c.logprobs, c.top, c.text, c.finish_reason) for c in answer.all_choices()]


class ChoicesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=1)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client
        cls.baseline = cls.cluster.blocks_free()
        cls.asked = requests()
        cls.alone = [facts(cls.client.generate(prompt, **fields)) for _, prompt, fields in cls.asked]
        # Tokens that end some of the choices at once and leave others, for the same prompt and seed.
        firsts = [tokens[0] for tokens, *_ in cls.alone[0]]
        assert len(set(firsts)) > 1, f"the choices must differ in their first token: {firsts}"
        for ends in ([firsts[1]], [firsts[0]], sorted(set(firsts))):
            name, prompt, fields = cls.asked[0]
            cls.asked.append((f"{name}, stop at {ends}", prompt, {**fields, "stop_token_ids": ends}))
            cls.alone.append(facts(cls.client.generate(prompt, **cls.asked[-1][2])))

    def wait_idle(self, cluster, baseline):
        def idle():
            state = cluster.client.state()
            return cluster.blocks_free() == baseline and (state.queued, state.running) == (0, 0)
        wait_until(idle, BOUND, lambda: f"blocks_free == {baseline}:\n{cluster.client.state()}")

    def test_they_differ_and_repeat(self):
        for (name, prompt, fields), alone in zip(self.asked, self.alone, strict=True):
            self.assertEqual(len(alone), N, name)
            again = self.client.generate(prompt, **fields)
            self.assertEqual(facts(again), alone, name)
            self.assertEqual(again.usage.prompt_tokens, len(prompt), name)
            self.assertEqual(again.usage.completion_tokens, sum(len(tokens) for tokens, *_ in alone), name)
            if "stop" not in name:
                self.assertTrue(all(len(tokens) == fields["max_tokens"] for tokens, *_ in alone), name)
                self.assertTrue(all(reason == LENGTH for *_, reason in alone), name)
            if fields["max_tokens"] > 2 and "stop" not in name:
                self.assertEqual(len({tuple(tokens) for tokens, *_ in alone}), N, f"{name}: all of them differ")
        self.wait_idle(self.cluster, self.baseline)

    def test_the_first_is_that_of_one_choice(self):
        name, prompt, fields = self.asked[0]
        self.assertEqual(facts(self.client.generate(prompt, **{**fields, "n": 1})), self.alone[0][:1], name)

    def test_stops_end_some_at_the_first_token(self):
        some, first, every = self.alone[-3:]
        for alone in (some, first):
            self.assertIn(1, [len(tokens) for tokens, *_ in alone])
            self.assertLess(1, max(len(tokens) for tokens, *_ in alone))
        self.assertEqual([len(tokens) for tokens, *_ in every], [1] * N)
        self.assertEqual([reason for *_, reason in every], [STOP] * N)

    def check_split(self, pairs):
        with Cluster(workers=0, prefill=pairs, decode=pairs, model=self.cluster.model) as cluster:
            baseline = cluster.blocks_free()
            for _ in range(2):
                calls = [Background(cluster.client, prompt, **fields) for _, prompt, fields in self.asked]
                for call, (name, _, _), alone in zip(calls, self.asked, self.alone, strict=True):
                    answer = call.join()
                    self.assertIsNone(call.error, name)
                    self.assertEqual(facts(answer), alone, name)
                self.wait_idle(cluster, baseline)

    def test_one_and_one(self):
        self.check_split(1)

    def test_two_and_two(self):
        self.check_split(2)

    def check_cancel(self, cluster, baseline):
        for tokens in (0, 1, 40):
            call = Background(cluster.client, [3, 4, 5], max_tokens=400, ignore_eos=True, temperature=1.0, n=N)
            wait_until(lambda: len(call.answer.token_ids) >= tokens or call.done.is_set(), 60, "tokens")
            call.cancel()
            call.join()
            self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
            self.wait_idle(cluster, baseline)
        cluster.check_alive()

    def test_a_cancel_frees_all_of_them(self):
        self.check_cancel(self.cluster, self.baseline)
        with Cluster(workers=0, prefill=1, decode=1, model=self.cluster.model) as cluster:
            self.check_cancel(cluster, cluster.blocks_free())

    def test_a_stop_string_ends_its_choice(self):
        _, prompt, fields = self.asked[0]
        texts = [text for _, _, _, text, _ in self.alone[0]]
        stop = next(t[i] for t in texts for i in range(len(t)) if any(t[i] not in other for other in texts))
        answer = self.client.generate(prompt, **fields, stop=[stop])
        self.assertEqual([c.text for c in answer.all_choices()], [text.split(stop, 1)[0] for text in texts])
        self.assertEqual([c.finish_reason for c in answer.all_choices()],
                         [STOP if stop in text else LENGTH for text in texts])
        self.wait_idle(self.cluster, self.baseline)

    def test_refusals(self):
        for n in (0, -1, 17):
            with self.assertRaises(grpc.RpcError) as caught:
                self.client.generate("hi", n=n)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(f"sampling.n: must be in [1, 16], got {n}", caught.exception.details())
        with Cluster(model=self.cluster.model, worker_flags=["--max-seqs", 2]) as cluster:
            with self.assertRaises(grpc.RpcError) as caught:
                cluster.client.generate("hi", n=3, max_tokens=4)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn("sampling.n: 3 answers", caught.exception.details())
            self.assertEqual(len(cluster.client.generate("hi", n=2, max_tokens=4).all_choices()), 2)

    def test_what_never_fits_the_pool_is_refused_at_once(self):
        prompt = [5] * 20
        for options in ({"workers": 1, "worker_flags": ["--kv-blocks", 12]},
                        {"workers": 0, "prefill": 1, "decode": 1, "decode_flags": ["--kv-blocks", 12]}):
            with Cluster(model=self.cluster.model, **options) as cluster:
                # A choice has 5 blocks (80 tokens), one of which is shared: 1 + 4 n blocks.
                for n, max_tokens, said in ((3, 60, "sampling.n: "), (1, 12 * BLOCK - 20 + 1, "sampling.max_tokens: ")):
                    with self.assertRaises(grpc.RpcError) as caught:
                        cluster.client.generate(prompt, timeout=10, n=n, max_tokens=max_tokens, ignore_eos=True)
                    self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                    self.assertTrue(caught.exception.details().startswith(said), caught.exception.details())
                for n, max_tokens in ((2, 60), (1, 12 * BLOCK - 20)):
                    answer = cluster.client.generate(prompt, n=n, max_tokens=max_tokens, ignore_eos=True)
                    self.assertEqual(len(answer.choice(n - 1).token_ids), max_tokens)

    # ---- the other fronts ----

    def post(self, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.cluster.router.fields["http"].rsplit(":", 1)[1]))
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()

    def test_http(self):
        _, prompt, fields = self.asked[0]
        fields = {"prompt": prompt, "max_tokens": fields["max_tokens"], "temperature": 1.0, "seed": SAMPLED["seed"],
                  "n": 3,
                  "ignore_eos": True, "logprobs": 0}
        status, body = self.post(**fields)
        self.assertEqual(status, 200, body)
        body = json.loads(body)
        self.assertEqual([c["index"] for c in body["choices"]], [0, 1, 2])
        self.assertEqual([c["text"] for c in body["choices"]], [text for _, _, _, text, _ in self.alone[0][:3]])
        self.assertEqual([len(c["logprobs"]["tokens"]) for c in body["choices"]], [fields["max_tokens"]] * 3)
        self.assertEqual({c["finish_reason"] for c in body["choices"]}, {"length"})
        self.assertEqual(body["usage"]["prompt_tokens"], len(prompt))
        self.assertEqual(body["usage"]["completion_tokens"], 3 * fields["max_tokens"])

        status, events = self.post(**fields, stream=True, stream_options={"include_usage": True})
        self.assertEqual(status, 200, events)
        events = [e[len("data: "):] for e in events.split("\n\n") if e]
        self.assertEqual(events[-1], "[DONE]")
        texts, reasons = ["", "", ""], [None, None, None]
        for event in map(json.loads, events[:-1]):
            for choice in event["choices"]:
                self.assertIsNone(reasons[choice["index"]], "nothing comes after its end")
                texts[choice["index"]] += choice["text"]
                reasons[choice["index"]] = choice["finish_reason"]
        self.assertEqual(texts, [c["text"] for c in body["choices"]])
        self.assertEqual(reasons, ["length"] * 3)
        self.assertEqual(json.loads(events[-2])["usage"]["completion_tokens"], 3 * fields["max_tokens"])

        status, body = self.post(prompt="hi", n=17)
        self.assertEqual(status, 400, body)
        self.assertIn("n: must be in", body)

    def test_cli(self):
        _, prompt, fields = self.asked[0]
        flags = ["--token-ids", ",".join(map(str, prompt)), "--temperature", 1, "--seed", SAMPLED["seed"], "--n", N,
                 "--max-tokens", fields["max_tokens"], "--ignore-eos"]
        flags = list(map(str, flags))
        out = self.cluster.cli("generate", *flags, "--json")
        self.assertEqual(out.returncode, 0, out.stderr)
        answer = json.loads(out.stdout)
        self.assertEqual([c["token_ids"] for c in answer["choices"]], [tokens for tokens, *_ in self.alone[0]])
        self.assertEqual([c["index"] for c in answer["choices"]], list(range(N)))
        self.assertEqual(answer["token_ids"], answer["choices"][0]["token_ids"])
        self.assertEqual(answer["usage"]["completion_tokens"], N * fields["max_tokens"])
        out = self.cluster.cli("generate", *flags)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertEqual(out.stdout, "".join(f"--- answer {i}\n{c['text']}\n" for i, c in enumerate(answer["choices"])))


if __name__ == "__main__":
    unittest.main()
