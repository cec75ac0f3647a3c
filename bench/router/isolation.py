"""Does the pace of running streams feel prompts that arrive? Prefill and decode apart against one pool that does both, with the
same processes and cores, in turns.

  bench/router/isolation.py [--rounds 5] [--streams 4] [--prompts 8] [--prompt-tokens 1500] [--json FILE]

A round: `streams` clients decode 300 tokens each; meanwhile `prompts` prompts of `prompt-tokens` tokens that nobody has seen arrive
one after the other. Reported of the running streams: p50, p99 and the largest gap between tokens (ITL), and of the prompts the
TTFT; each as the median of the rounds with the least and the most. Split is 1 P + 1 D with one thread each, both is two workers
of role `both` with one thread each.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("SLUICE_BUILD", str(ROOT / "build"))
from cluster import Cluster, real_model  # noqa: E402  pylint: disable=wrong-import-position
from sluice_client import Background, Client  # noqa: E402  pylint: disable=wrong-import-position

SHAPES = {"split": {"workers": 0, "prefill": 1, "decode": 1}, "both": {"workers": 2}}


def quantile(values, q):
    """By linear interpolation."""
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def one_round(cluster, options, rng):
    client = Client(cluster.address, like=cluster.client)
    streams = [Background(client, [rng.randrange(500, 40000) for _ in range(20)], max_tokens=300, ignore_eos=True)
               for _ in range(options.streams)]
    while not all(len(s.arrivals) >= 10 for s in streams):
        time.sleep(0.01)
    quiet_until = time.monotonic() + 1.0
    time.sleep(1.0)
    ttfts = []

    def ask():
        for _ in range(options.prompts):
            began = time.monotonic()
            call = Background(client, [rng.randrange(500, 40000) for _ in range(options.prompt_tokens)], max_tokens=2,
                              ignore_eos=True)
            call.join(120)
            if call.error:
                raise call.error
            ttfts.append(call.arrivals[0] - began)
    asker = threading.Thread(target=ask)
    asker.start()
    asker.join()
    disturbed_until = time.monotonic()
    gaps, quiet = [], []
    for stream in streams:
        for a, b in zip(stream.arrivals, stream.arrivals[1:]):
            if quiet_until <= a and b <= disturbed_until:
                gaps.append(1000 * (b - a))
            elif b <= quiet_until:
                quiet.append(1000 * (b - a))
        stream.cancel()
    client.close()
    time.sleep(0.5)
    if not gaps:
        raise SystemExit("the streams ended before the prompts; ask for fewer --prompts")
    return {"itl_p50_quiet": quantile(quiet, 0.5), "itl_p50": quantile(gaps, 0.5), "itl_p99": quantile(gaps, 0.99),
            "largest_gap": max(gaps), "ttft_p50": 1000 * quantile(ttfts, 0.5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=1500)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    rng = random.Random(7)
    model = real_model()
    clusters = {name: Cluster(model=model, worker_flags=["--threads", 1, "--kv-blocks", 1200], **shape)
                for name, shape in SHAPES.items()}
    results = {name: [] for name in SHAPES}
    for name in SHAPES:
        clusters[name].__enter__()
    try:
        for number in range(options.rounds):
            for name in SHAPES if number % 2 == 0 else reversed(SHAPES):
                results[name].append(one_round(clusters[name], options, rng))
                print(f"round {number + 1} {name}: " + ", ".join(f"{k} {v:.1f}" for k, v in results[name][-1].items()),
                      file=sys.stderr, flush=True)
    finally:
        for cluster in clusters.values():
            cluster.close()
    figures = {name: {key: {"median": statistics.median(r[key] for r in rounds), "least": min(r[key] for r in rounds),
                            "most": max(r[key] for r in rounds)} for key in rounds[0]}
               for name, rounds in results.items()}
    ratios = {key: statistics.median(b[key] / s[key] for b, s in zip(results["both"], results["split"]))
              for key in results["both"][0]}
    out = {"milliseconds": figures, "both_over_split": ratios, "rounds": options.rounds}
    print(json.dumps(out, indent=1))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
