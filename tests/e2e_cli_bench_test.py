"""`sluice bench` against a tiny cluster: its figures are those of its raw records, recomputed here."""
import json
import math
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

from cluster import BUILD, Cluster


def percentile(values, share):
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def spread(values):
    if not values:
        return {"n": 0, "mean": 0, "p50": 0, "p90": 0, "p99": 0, "max": 0}
    values = sorted(values)
    total = 0.0
    for value in values:  # from left to right, as there
        total += value
    return {"n": len(values), "mean": total / len(values), "p50": percentile(values, 0.5), "p90": percentile(values, 0.9),
            "p99": percentile(values, 0.99), "max": values[-1]}


def tpot(record):
    return (record["last_s"] - record["first_s"]) * 1000 / (record["output_tokens"] - 1)


def is_good(record, ttft_slo, tpot_slo):
    return (record["status"] == "done" and (record["first_s"] - record["scheduled_s"]) * 1000 <= ttft_slo and
            (record["output_tokens"] < 2 or tpot(record) <= tpot_slo))


def wilson(good, offered):
    z, share = 1.959963984540054, good / offered
    centre = (share + z * z / (2 * offered)) / (1 + z * z / offered)
    half = z / (1 + z * z / offered) * math.sqrt(share * (1 - share) / offered + z * z / (4 * offered * offered))
    return max(0, centre - half), min(1, centre + half)


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=1).__enter__()
        cls.http = cls.cluster.router.fields["http"]
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()
        cls.folder.cleanup()

    def bench(self, *flags, code=0, address=None):
        path = pathlib.Path(self.folder.name) / "out.json"
        run = subprocess.run([BUILD / "sluice", "bench", "--router", address or self.cluster.address, "--http", self.http,
                              "--json", path, *map(str, flags)], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return (json.loads(path.read_text()) if path.read_text() else None), run

    def check_summary(self, out, ttft_slo, tpot_slo):
        records, summary = out["records"], out["summary"]
        done = [r for r in records if r["status"] == "done"]
        for name, values in {
                "ttft_ms": [(r["first_s"] - r["scheduled_s"]) * 1000 for r in done],
                "tpot_ms": [tpot(r) for r in done if r["output_tokens"] >= 2],
                "itl_ms": [gap for r in done for gap in r["gaps_ms"]],
                "largest_gap_ms": [max(r["gaps_ms"]) for r in done if r["gaps_ms"]],
                "first_gap_ms": [r["gaps_ms"][0] for r in done if r["gaps_ms"]],
                "e2e_ms": [(r["last_s"] - r["scheduled_s"]) * 1000 for r in done],
                "slip_ms": [(r["sent_s"] - r["scheduled_s"]) * 1000 for r in records]}.items():
            self.assertEqual(summary[name], spread(values), name)
        good = sum(is_good(r, ttft_slo, tpot_slo) for r in records)
        self.assertEqual((summary["good"], summary["offered"]), (good, len(records)))
        self.assertEqual(summary["attainment"], good / len(records))
        low, high = wilson(good, len(records))
        self.assertAlmostEqual(summary["attainment_low"], low, 12)
        self.assertAlmostEqual(summary["attainment_high"], high, 12)
        self.assertEqual(summary["output_tokens"], sum(r["output_tokens"] for r in done))

    def test_figures_are_those_of_the_records(self):
        out, run = self.bench("--rate", 100, "--requests", 80, "--input-tokens", "20:5", "--output-tokens", "6:2",
                              "--ttft-slo-ms", 20, "--tpot-slo-ms", 1.5, "--seed", 3, "--warmup", 4)
        self.check_summary(out, 20, 1.5)
        self.assertEqual(len(out["records"]), 80)
        self.assertEqual({r["status"] for r in out["records"]}, {"done"})
        for record in out["records"]:
            self.assertEqual(record["output_tokens"], record["wanted_tokens"])
            self.assertEqual(len(record["gaps_ms"]), record["output_tokens"] - 1)
            self.assertTrue(15 <= record["prompt_tokens"] <= 25, record)
            self.assertAlmostEqual(sum(record["gaps_ms"]), (record["last_s"] - record["first_s"]) * 1000, 6)
        self.assertIn("this client:", run.stdout)
        again, _ = self.bench("--rate", 100, "--requests", 80, "--seed", 3)
        self.assertEqual([r["scheduled_s"] for r in again["records"]], [r["scheduled_s"] for r in out["records"]])

    def test_http_completions_and_a_picture(self):
        picture = pathlib.Path(self.folder.name) / "out.svg"
        out, _ = self.bench("--api", "completions", "--rate", "inf", "--max-concurrency", 4, "--requests", 30,
                            "--input-tokens", 20, "--output-tokens", 8, "--ttft-slo-ms", 50, "--plot", picture)
        self.check_summary(out, 50, math.inf)
        for record in out["records"]:
            self.assertEqual((record["status"], record["prompt_tokens"], record["output_tokens"]), ("done", 20, 8), record)
        # Never more than four at once.
        starts = sorted(r["sent_s"] for r in out["records"])
        for start in starts:
            self.assertLessEqual(sum(r["sent_s"] <= start < r["ended_s"] for r in out["records"]), 4)
        xml.etree.ElementTree.parse(picture)

    def test_http_chat(self):
        out, _ = self.bench("--api", "chat", "--rate", 50, "--requests", 10, "--input-tokens", 12, "--output-tokens", 8)
        self.check_summary(out, math.inf, math.inf)
        for record in out["records"]:
            self.assertEqual((record["status"], record["output_tokens"]), ("done", 8), record)
            self.assertGreater(record["prompt_tokens"], 12, "words, and the template around them")

    def test_shared_prefixes_and_traces_reach_the_cache(self):
        out, _ = self.bench("--rate", 50, "--requests", 20, "--input-tokens", 8, "--output-tokens", 2,
                            "--shared-prefix-tokens", 32, "--prefixes", 1)
        self.assertEqual({r["prompt_tokens"] for r in out["records"]}, {40})
        self.assertGreaterEqual(out["summary"]["cached_tokens"], 32 * 15)
        trace = pathlib.Path(__file__).resolve().parents[1] / "bench/traces/azure2023_conv_2000.csv"
        out, _ = self.bench("--trace", trace, "--divide", 64, "--speed", 200, "--requests", 10)
        self.assertEqual(out["records"][0]["prompt_tokens"], 374 // 64)
        self.assertAlmostEqual(out["records"][1]["scheduled_s"], 4.314_489 / 200, 5)

    def test_goodput_states_every_rate(self):
        out, run = self.bench("--goodput-search", "--rate", 400, "--requests", 200, "--input-tokens", 8, "--output-tokens", 2,
                              "--ttft-slo-ms", 0.001, "--goodput-tries", 2)
        self.assertEqual([t["rate"] for t in out["goodput"]["tries"]], [400, 200])
        self.assertIsNone(out["goodput"]["goodput"])
        self.assertIn("none of these rates", run.stdout)
        out, run = self.bench("--goodput-search", "--rate", 200, "--requests", 200, "--input-tokens", 8, "--output-tokens", 2,
                              "--ttft-slo-ms", 100000, "--goodput-tries", 2)
        self.assertEqual(out["goodput"]["goodput"], 400)
        self.assertIn("goodput: 400 requests/s keep 90 % (attainment 100.0 %, 95 % interval 98.1 to 100.0 %)", run.stdout)

    def test_failures_are_counted(self):
        out, run = self.bench("--rate", 50, "--requests", 4, "--vocabulary", 1000000, "--input-tokens", 8, code=1)
        self.assertEqual([r["status"] for r in out["records"]], ["failed"] * 4)
        self.assertIn("4 failed", run.stdout)
        self.assertIn("token_ids.ids", run.stdout)
        out, _ = self.bench("--rate", 100, "--requests", 3, "--output-tokens", 60, "--input-tokens", 8, "--timeout", 0.000001,
                            code=1)
        self.assertEqual([r["status"] for r in out["records"]], ["abandoned"] * 3)
        out, _ = self.bench("--api", "completions", "--rate", 100, "--requests", 3, "--output-tokens", 60, "--input-tokens", 8,
                            "--timeout", 0.000001, code=1)
        self.assertEqual([r["status"] for r in out["records"]], ["abandoned"] * 3)

    def test_wrong_flags_and_nobody_there(self):
        for flags, word in {("--rate", "fast"): "--rate", ("--input-tokens", "5:5"): "--input-tokens",
                            ("--goodput-search",): "--ttft-slo-ms", ("--plot", "a.png"): ".svg",
                            ("--input-tokens", "1000000"): "context", ("--trace", "/nonexistent"): "/nonexistent",
                            ("--divide", "2"): "--trace"}.items():
            _, run = self.bench(*flags, code=2)
            self.assertIn(word, run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        _, run = self.bench("--requests", 1, code=1, address="127.0.0.1:1")
        self.assertIn("no router answers", run.stderr)

    def test_interrupt_prints_what_there_is(self):
        path = pathlib.Path(self.folder.name) / "interrupted.json"
        run = subprocess.Popen([BUILD / "sluice", "bench", "--router", self.cluster.address, "--rate", "5", "--requests",
                                "1000", "--input-tokens", "8", "--output-tokens", "4", "--json", path],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        out, error = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 130, error)
        self.assertIn("offered", out)
        records = json.loads(path.read_text())["records"]
        self.assertTrue(1 <= len(records) < 1000)
        self.cluster.check_alive()


if __name__ == "__main__":
    unittest.main()
