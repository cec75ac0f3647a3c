"""A quarter of a minute of soak.py with the tiny model, which makes it thousands of requests. The five minutes with the
real model are the tests `soak_*` of deploy/test --all."""
import json
import os
import unittest

import soak

SECONDS = os.environ.get("SLUICE_SOAK_SECONDS", "15")


class SoakTest(unittest.TestCase):
    def run_with(self, *arguments):
        figures = soak.soak(soak.parse(["--model", "tiny", "--seconds", SECONDS, *arguments]))
        print(json.dumps(figures), flush=True)
        self.assertEqual(figures["faults"], [])
        for way in ("grpc", "http", "sse"):
            self.assertGreater(figures["answers"].get(f"{way} whole", 0), 0)
            self.assertGreater(figures["answers"].get(f"{way} cancelled", 0), 0)

    def test_one_pair(self):
        self.run_with()

    def test_two_and_two(self):
        self.run_with("--prefill", "2", "--decode", "2")


class TheSoakItselfCanFail(unittest.TestCase):
    def test_memory_that_grows_is_not_flat(self):
        watch = soak.Watch({"grows": 0, "settles": 0, "waves": 0})
        for i in range(200):
            watch.samples["grows"].append((i, 50000 + 12 * i, 0, 9, 9))
            watch.samples["settles"].append((i, 50000 + min(20000, 1000 * i), 0, 9, 9))
            watch.samples["waves"].append((i, 50000 + 800 * (i % 2), 0, 9, 9))
        flat = {name: figures["flat"] for name, figures in watch.report().items()}
        self.assertEqual(flat, {"grows": False, "settles": True, "waves": True})


if __name__ == "__main__":
    unittest.main()
