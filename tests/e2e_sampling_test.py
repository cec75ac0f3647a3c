"""Every sampling field through the whole path: the tiny model on one worker, and with prefill and decode apart."""
import collections
import json
import random
import subprocess
import unittest
import urllib.request

from cluster import BUILD, Cluster

SEED = random.randrange(1 << 30)


class SamplingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.both = Cluster(workers=1)
        cls.addClassCleanup(cls.both.close)
        cls.both.__enter__()
        cls.apart = Cluster(workers=0, prefill=1, decode=1, model=cls.both.model)
        cls.addClassCleanup(cls.apart.close)
        cls.apart.__enter__()
        cls.client = cls.both.client

    def http(self, **fields):
        port = self.both.router.fields["http"].rsplit(":", 1)[1]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(fields).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def test_cached_prefixes_are_shared_between_equal_salts_only(self):
        prompt = [random.randrange(3, 200) for _ in range(50)]
        for client in (self.both.client, self.apart.client):
            answers = [client.generate(prompt, max_tokens=4, cache_salt=salt) for salt in ("a", "a", "b", "")]
            self.assertEqual([a.usage.cached_tokens for a in answers], [0, 48, 0, 0])
            self.assertEqual(len({tuple(a.token_ids) for a in answers}), 1)

    def test_the_same_tokens_with_prefill_and_decode_apart(self):
        rng = random.Random(SEED)
        choices = {
            "temperature": [0.0, 0.7, 1.5], "top_k": [0, 20], "top_p": [1.0, 0.9], "min_p": [0.0, 0.05],
            "repetition_penalty": [1.0, 1.3, 0.8], "presence_penalty": [0.0, 1.5], "frequency_penalty": [0.0, 0.7, -0.5],
            "logit_bias": [{}, {5: 3.0, 6: -100.0}], "min_tokens": [0, 20], "stop_token_ids": [[], [5, 9]],
        }
        for case in range(25):
            fields = {name: rng.choice(values) for name, values in choices.items()}
            fields |= {"seed": case, "max_tokens": 24, "logprobs": 3}
            prompt = [rng.randrange(3, 200) for _ in range(rng.choice([1, 15, 16, 17, 40]))]
            with self.subTest(case=case, **fields):
                one, other = (c.client.generate(prompt, **fields) for c in (self.both, self.apart))
                self.assertEqual(one.token_ids, other.token_ids)
                self.assertEqual(one.logprobs, other.logprobs)
                self.assertEqual(one.top, other.top)

    def test_logit_bias(self):
        answer = self.client.generate("ab", max_tokens=5, ignore_eos=True, logit_bias={7: 100.0})
        self.assertEqual(answer.token_ids, [7] * 5)
        first = self.client.generate("ab", max_tokens=1, ignore_eos=True).token_ids[0]
        banned = self.client.generate("ab", max_tokens=20, ignore_eos=True, logit_bias={first: -100.0})
        self.assertNotIn(first, banned.token_ids)

    def test_penalties(self):
        plain = {"max_tokens": 40, "ignore_eos": True, "temperature": 0.3, "seed": 1}
        repeats = collections.Counter(self.client.generate("ab", **plain).token_ids)
        for penalty in ({"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"repetition_penalty": 5.0}):
            with self.subTest(**penalty):
                penalised = collections.Counter(self.client.generate("ab", **plain, **penalty).token_ids)
                self.assertGreater(len(penalised), len(repeats))

    def test_min_tokens_and_stop_ids(self):
        forced = {"logit_bias": {7: 100.0}, "stop_token_ids": [7]}
        self.assertEqual(self.client.generate("ab", max_tokens=9, **forced).token_ids, [7])
        answer = self.client.generate("ab", max_tokens=9, min_tokens=4, **forced)
        self.assertEqual(len(answer.token_ids), 5)
        self.assertEqual(answer.token_ids[4], 7)
        self.assertNotIn(7, answer.token_ids[:4])

    def test_http_and_the_command_line_say_the_same(self):
        fields = {"max_tokens": 12, "temperature": 0.9, "top_k": 30, "min_p": 0.01, "repetition_penalty": 1.2,
                  "presence_penalty": 0.5, "frequency_penalty": 0.25, "min_tokens": 3, "seed": 4}
        grpc_text = self.client.generate("ab", logit_bias={5: 4.0, 6: -100.0}, **fields).text
        http = self.http(prompt="ab", logit_bias={"5": 4, "6": -100}, **fields)
        self.assertEqual(http["choices"][0]["text"], grpc_text)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in fields.items()]
        command = [BUILD / "sluice", "generate", "--raw", "--router", self.both.address, "--json", *flags,
                   "--logit-bias", "5:4,6:-100", "ab"]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
        self.assertEqual(said["text"], grpc_text)


if __name__ == "__main__":
    unittest.main()
