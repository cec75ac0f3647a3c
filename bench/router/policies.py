"""Placement policies on a small real cluster, on one trace, at one rate, in turns.

  bench/router/policies.py [--trace mooncake-conversation] [--rate R] [--requests 120] [--prefill 3] [--decode 1]
                           [--policies slo,prefix,least-loaded,round-robin] [--rounds 2] [--json FILE]

Each run has a cluster of its own, so that no cache is warm; lengths are divided by --divide (bench/router/trace_requests.py), arrivals are the
trace's, made faster or slower until they are --rate a second. TTFT counts from the scheduled arrival. A request is good with a TTFT
below --ttft-ms and a mean time per output token below --tpot-ms. Reported: TTFT p50 and p99, TPOT p99, the share of prompt tokens that
were found in a cache, the share of good requests, and the most rows of a prefill worker over the mean (imbalance).
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
os.environ.setdefault("SLUICE_BUILD", str(ROOT / "build"))
import trace_requests as traces  # noqa: E402  pylint: disable=wrong-import-position
from cluster import Cluster, real_model, wait_until  # noqa: E402  pylint: disable=wrong-import-position
from isolation import quantile  # noqa: E402  pylint: disable=wrong-import-position
from sluice_client import Background  # noqa: E402  pylint: disable=wrong-import-position


def replay(cluster, requests, options):
    began = time.monotonic() + 0.2
    factor = (len(requests) - 1) / (requests[-1].at * options.rate)
    calls = []
    for request in requests:
        due = began + request.at * factor
        time.sleep(max(0.0, due - time.monotonic()))
        calls.append((request, due, Background(cluster.client, request.prompt, max_tokens=request.max_tokens, ignore_eos=True)))
    ttft, tpot, cached, prompts, good = [], [], 0, 0, 0
    for request, due, call in calls:
        call.join(300)
        if call.error:
            raise call.error
        first = 1000 * (call.arrivals[0] - due)
        pace = 1000 * (call.arrivals[-1] - call.arrivals[0]) / max(1, len(call.answer.token_ids) - 1)
        ttft.append(first)
        tpot.append(pace)
        cached += call.answer.usage.cached_tokens
        prompts += call.answer.usage.prompt_tokens
        good += first <= options.ttft_ms and pace <= options.tpot_ms
    rows = [w.engine.rows for w in cluster.client.state().workers if w.role == 1]
    return {"ttft_p50": quantile(ttft, 0.5), "ttft_p99": quantile(ttft, 0.99), "tpot_p99": quantile(tpot, 0.99),
            "hit_share": cached / prompts, "good": good / len(calls), "imbalance": max(rows) / statistics.mean(rows)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default="mooncake-conversation", choices=sorted(traces.NAMES))
    parser.add_argument("--rate", type=float, default=3.0)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--divide", type=int, default=16)
    parser.add_argument("--longest", type=int, default=1500)
    parser.add_argument("--prefill", type=int, default=3)
    parser.add_argument("--decode", type=int, default=1)
    parser.add_argument("--kv-blocks", type=int, default=600)
    parser.add_argument("--policies", default="slo,prefix,least-loaded,round-robin")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ttft-ms", type=float, default=2000)
    parser.add_argument("--tpot-ms", type=float, default=100)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    requests = traces.load(options.trace, options.requests, options.divide, options.longest)
    policies, model = options.policies.split(","), real_model()
    results = {policy: [] for policy in policies}
    for number in range(options.rounds):
        for policy in policies if number % 2 == 0 else reversed(policies):
            with Cluster(model=model, workers=0, prefill=options.prefill, decode=options.decode,
                         worker_flags=["--threads", 1, "--kv-blocks", options.kv_blocks],
                         router_flags=["--policy", policy]) as cluster:
                cluster.client.generate([5] * 20, max_tokens=3)
                wait_until(lambda: len(cluster.active()) == options.prefill + options.decode, 20, "all workers")
                results[policy].append(replay(cluster, requests, options))
            print(f"round {number + 1} {policy}: " + ", ".join(f"{k} {v:.3g}" for k, v in results[policy][-1].items()),
                  file=sys.stderr, flush=True)
    figures = {policy: {key: [round(r[key], 3) for r in runs] for key in runs[0]} for policy, runs in results.items()}
    out = {"options": {k: v for k, v in vars(options).items() if k != "json"}, "runs": figures}
    print(json.dumps(out, indent=1))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
