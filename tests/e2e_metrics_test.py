"""/metrics, the requests that a router remembers, and deploy/monitoring against a live cluster: the figures are those of
what was asked, every name in rules, dashboard and documents exists, and a real Prometheus fires an alert for a killed worker.
"""
import json
import re
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import grpc

import prometheus
from cluster import ROOT, Cluster, wait_until

MONITORING = ROOT / "deploy/monitoring"
NAME = re.compile(r"\bsluice_[a-z0-9_]+\b")
PATIENCE = 60


def fetch(cluster, path):
    with urllib.request.urlopen(f"http://{cluster.router.fields['http']}{path}", timeout=30) as answer:
        return answer.read().decode()


def families(text):
    """{name: type}"""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def series(text):
    """{name and labels: value}"""
    return {key: float(value) for key, value in re.findall(r"^(sluice_\S+?(?:\{.*\})?) (\S+)$", text, re.M)}


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=0, prefill=1, decode=2, router_flags=["--lease-ms", 3000])
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        self.text = fetch(self.cluster, "/metrics")
        self.families = families(self.text)

    def unknown(self, text):
        names = {re.sub(r"_(bucket|sum|count)$", "", n) if re.sub(r"_(bucket|sum|count)$", "", n) in self.families else n
                 for n in NAME.findall(text)}
        return names - set(self.families)

    def test_every_documented_metric_exists_and_no_other(self):
        table = (ROOT / "docs/operations.md").read_text(encoding="utf-8").split("## Metrics")[1].split("\n## ")[0]
        documented = set(re.findall(r"`(sluice_\w+)", "\n".join(line for line in table.splitlines() if line.startswith("|"))))
        self.assertEqual(documented, set(self.families))

    def test_rules_and_dashboard_name_what_exists(self):
        made = subprocess.run([sys.executable, MONITORING / "make_dashboard"], capture_output=True, text=True, check=True).stdout
        self.assertEqual((MONITORING / "dashboard.json").read_text(encoding="utf-8"), made, "run deploy/monitoring/make_dashboard")
        for text in (made, (MONITORING / "rules.yml").read_text(encoding="utf-8")):
            self.assertGreater(len(NAME.findall(text)), 10)
            self.assertEqual(self.unknown(text), set())
        self.assertEqual(self.unknown("rate(sluice_no_such_total[5m])"), {"sluice_no_such_total"}, "this test can fail")

    def test_figures(self):
        before = series(self.text)
        asked, tokens = 5, 12
        for i in range(asked):
            self.cluster.client.generate(f"{i} some words", max_tokens=tokens, ignore_eos=True, request_id=f"figure-{i}", tenant="t")
        with self.assertRaises(grpc.RpcError):
            self.cluster.client.generate("words", max_tokens=-1)
        after = series(fetch(self.cluster, "/metrics"))

        def grew(name):
            return after[name] - before[name]

        self.assertEqual(grew('sluice_request_success_total{finished_reason="length"}'), asked)
        self.assertEqual(grew("sluice_generation_tokens_total"), asked * tokens)
        self.assertEqual(grew('sluice_requests_refused_total{reason="invalid_argument"}'), 1)
        for name in ("time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds",
                     "request_queue_time_seconds", "request_prompt_tokens"):
            self.assertEqual(grew(f"sluice_{name}_count"), asked, name)
            self.assertEqual(grew(f'sluice_{name}_bucket{{le="+Inf"}}'), asked, name)
        self.assertLessEqual(grew("sluice_inter_token_latency_seconds_count"), asked * (tokens - 1))
        self.assertGreater(grew("sluice_inter_token_latency_seconds_count"), 0)
        self.assertEqual(grew("sluice_request_generation_tokens_sum"), asked * tokens)

    def test_requests_of_a_router(self):
        answer = self.cluster.client.generate("one request", max_tokens=9, ignore_eos=True, request_id="listed", tenant="someone")
        request = json.loads(fetch(self.cluster, "/cluster/requests?id=listed"))["requests"][0]
        self.assertEqual((request["state"], request["tenant"], request["completion_tokens"]), ("done", "someone", 9))
        self.assertTrue(request["prefill_worker"].startswith("prefill 127.0.0.1:") and request["decode_worker"].startswith("decode "))
        self.assertAlmostEqual(request["timing"]["ttft_ms"], answer.timing.ttft_ms, places=6)
        self.assertGreater(len(request["timing"]["timeline"]), 5)
        bare = json.loads(fetch(self.cluster, "/cluster/requests?timeline=0&limit=1"))["requests"]
        self.assertEqual(([r["request_id"] for r in bare], bare[0]["timing"]["timeline"]), (["listed"], []))
        stream = self.cluster.client.stream("a long one", max_tokens=400, ignore_eos=True, request_id="running")
        next(iter(stream))
        newest = lambda: self.cluster.client.requests(limit=1).requests[0]  # gRPC has the same
        wait_until(lambda: newest().state == "decoding", PATIENCE, newest)
        self.assertEqual((newest().request_id, newest().ended_ms), ("running", 0))
        stream.cancel()
        wait_until(lambda: newest().state == "cancelled", PATIENCE, newest)
        roles = [worker["role"] for worker in json.loads(fetch(self.cluster, "/cluster/state"))["workers"]]
        self.assertEqual((roles.count("ROLE_PREFILL"), set(roles)), (1, {"ROLE_PREFILL", "ROLE_DECODE"}))
        for bad in ("limit=0", "limit=x", "limit=100000"):
            with self.assertRaises(urllib.error.HTTPError) as raised:
                fetch(self.cluster, f"/cluster/requests?{bad}")
            self.assertEqual(raised.exception.code, 400)

    @unittest.skipIf(prometheus.missing(), prometheus.missing())
    def test_prometheus(self):
        cluster = self.cluster
        port = cluster.start_worker(role="decode").fields["port"]  # the one that dies
        config = cluster.folder / "prometheus.yml"
        text = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
        config.write_text(text.replace("localhost:8000", cluster.router.fields["http"]).replace("10s", "1s"), encoding="utf-8")
        (cluster.folder / "rules.yml").write_text((MONITORING / "rules.yml").read_text(encoding="utf-8"), encoding="utf-8")
        check = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
        active = 'sluice_workers{role="decode",state="active"}'
        with prometheus.Prometheus(cluster.folder, config) as server:
            log = lambda: (cluster.folder / "prometheus.log").read_text(encoding="utf-8")
            wait_until(lambda: list(server.query(active).values()) == [3], PATIENCE, log)
            self.assertEqual(list(server.query('up{job="sluice"}').values()), [1])
            self.assertTrue(server.query(f'sluice_worker_up{{worker="127.0.0.1:{port}",state="active"}}'))
            # Every expression of the dashboard is one.
            for panel in json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]:
                for target in panel.get("targets", ()):
                    server.query(target["expr"].replace("$__rate_interval", "1m"))
            firing = lambda: {a["labels"]["alertname"] for a in server.get("alerts")["alerts"] if a["state"] == "firing"}
            seen = lambda: server.get("query", query=f"{active}[10s]")["result"][0]["values"]
            wait_until(lambda: len(seen()) > 3, PATIENCE, log)
            self.assertNotIn("SluiceWorkerDown", firing())
            cluster.workers[-1].end(9)
            wait_until(lambda: "SluiceWorkerDown" in firing(), PATIENCE, lambda: f"{firing()}\n{fetch(cluster, '/metrics')}")
            health = {r["name"]: r["health"] for g in server.get("rules")["groups"] for r in g["rules"]}
            self.assertEqual(set(health.values()), {"ok"}, health)
            # A worker that has ended vanishes with its lease.
            wait_until(lambda: f'worker="127.0.0.1:{port}"' not in re.sub(r'peer="[^"]*"', "", fetch(cluster, "/metrics")), PATIENCE, "it vanishes")
            self.assertNotIn("duplicate", log())


if __name__ == "__main__":
    unittest.main()
