#!/usr/bin/env python3
"""How much of the time to the first tokens a KV transfer adds where it is not hidden behind computing.

    ~/.cache/sluice/venv/bin/python bench/kv_transfer/exposed.py [--requests 20] [--json FILE]

Two clusters of one prefill and one decode worker with the default model, one thread each, asked in turns, one request at a
time: one over shared memory, one over TCP between two network namespaces (router and decode worker in this one, the prefill
worker in the other, a pair of virtual devices between them). Prompts are fresh random tokens.

Exposed is what the prefill worker says of each request: from the end of the prompt's last step until everything is
acknowledged. Exit code 2: namespaces can't be made here, which needs root and `ip`.
"""
import argparse
import json
import pathlib
import random
import signal
import statistics
import sys

from asking import BUILD, Cluster, Server, ask, fresh_prompt, load, real_model, show, three
from namespaces import Namespace, Unable


class ApartCluster(Cluster):
    """The prefill worker lives in another network namespace."""

    def __init__(self, there, **shape):
        super().__init__(router_flags=["--host", there.here], **shape)
        self.there = there

    @property
    def address(self):
        return f"{self.there.here}:{self.port}"

    def start_worker(self, port=0, wait=True, role="both", flags=None):
        apart = role == "prefill"
        host = self.there.address if apart else self.there.here
        worker = Server([*(self.there.prefix if apart else []), BUILD / f"sluice_{role}", "--role", role, "--router",
                         self.address, "--model", self.model, "--port", port, "--host", host, "--advertise", host,
                         "--kv-channel", "tcp", *self.worker_flags], self._log(role))
        worker.role = role
        self.workers.append(worker)
        return worker.wait_ready() if wait else worker


def clusters(args, there):
    shape = {"workers": 0, "prefill": 1, "decode": 1, "model": args.model, "worker_flags": ["--threads", 1]}
    shm = Cluster(**{**shape, "worker_flags": [*shape["worker_flags"], "--kv-channel", "shm"]})
    return {"shm": shm, "tcp": ApartCluster(there, **shape)}


def figures(results):
    shares = [100 * r["exposed_ms"] / r["ttft_ms"] for r in results]
    return {"requests": len(results),
            "ttft_ms": three([r["ttft_ms"] for r in results], 0),
            "exposed_ms": three([r["exposed_ms"] for r in results]),
            "exposed_share_percent": three(shares, 2),
            "first_gap_ms": three([r["gaps"][0] for r in results]),
            "later_gaps_ms": three([gap for r in results for gap in r["gaps"][1:]])}


def measure(args, by_name):
    rng = random.Random(args.seed)
    results = {name: [] for name in by_name}
    for index in range(-args.warm_up, args.requests):
        for name, cluster in by_name.items():
            result = ask(cluster.client, fresh_prompt(rng, args.prompt), args.tokens)
            if index >= 0:
                results[name].append(result)
        if args.verbose and index >= 0:
            print(f"{index}: " + ", ".join(f"{n} {r[-1]['exposed_ms']:.1f} of {r[-1]['ttft_ms']:.0f} ms"
                                           for n, r in results.items()), file=sys.stderr)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20, help="that count, of each channel")
    parser.add_argument("--warm-up", type=int, default=2, help="requests before them")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=12, help="tokens of an answer")
    parser.add_argument("--model", type=pathlib.Path, default=None, help="GGUF file; default: the tests' real one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.model = args.model or real_model()
    before = load()
    with Namespace() as there:
        by_name = clusters(args, there)
        with by_name["shm"], by_name["tcp"]:
            results = measure(args, by_name)
    summary = {name: figures(r) for name, r in results.items()}
    print(f"{args.requests} prompts of {args.prompt} tokens each; median / p90 / largest; load {before:g} before, {load():g} after")
    for name, f in summary.items():
        gap = statistics.median([r["gaps"][0] for r in results[name]])
        print(f"{name}: TTFT {show(f['ttft_ms'])} ms, exposed {show(f['exposed_ms'])} ms = "
              f"{show(f['exposed_share_percent'])} % of TTFT; token 1 to 2 {show(f['first_gap_ms'])} ms, "
              f"later gaps {show(f['later_gaps_ms'])} ms ({gap - f['later_gaps_ms'][0]:+.1f} ms)")
    if args.json:
        args.json.write_text(json.dumps({"summary": summary, "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    # So that everything is stopped and removed; also where a script starts this in the background.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except Unable as unable:
        print(f"bench/kv_transfer/exposed.py: {unable}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
