#!/usr/bin/env python3
"""Whole clusters of two prefill and one decode worker, with workers of two ranks and of one, on the same cores.

    ~/.cache/sluice/venv/bin/python bench/kv_transfer/tensor_parallel.py [--requests 15] [--json FILE]

Every cluster comes from `deploy/up --prefill 2 --decode 1`, and all are asked in turns, one request at a time, prompts of
fresh random tokens: TTFT and TPOT as the router tells them. A worker of two ranks with one thread each is compared with a
worker of one rank with two threads, which has the same cores, and with one of one thread. With --pairs two requests run at
once on every cluster instead, so that both prefill workers have something to do.
"""
import argparse
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

from asking import ROOT, ask, fresh_prompt, load, show, three
from sluice_client import Client

SHAPES = {"tp 2, 1 thread a rank": ["--tp", "2", "--threads", "1"], "tp 1, 2 threads": ["--tp", "1", "--threads", "2"],
          "tp 1, 1 thread": ["--tp", "1", "--threads", "1"]}


class Up:
    """A cluster of deploy/up in a state folder of its own; down again at the end, however that comes."""

    def __init__(self, flags):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-tp-")
        self.flags, self.client = flags, None

    def __enter__(self):
        try:
            done = subprocess.run([ROOT / "deploy/up", "--no-setup", "--prefill", "2", "--decode", "1", "--grpc-port", "0",
                                   "--port", "0", "--state-dir", self.folder.name, *self.flags],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"deploy/up {' '.join(self.flags)}:\n{done.stdout}{done.stderr}")
            self.client = Client((pathlib.Path(self.folder.name) / "run/router.addr").read_text(encoding="ascii").strip())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.client:
            self.client.close()
        subprocess.run([ROOT / "deploy/down", "--state-dir", self.folder.name, "--quiet"], check=False)
        self.folder.cleanup()


def ask_at_once(client, prompts, tokens):
    answers = [None] * len(prompts)

    def one(i):
        answers[i] = ask(client, prompts[i], tokens)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in answers, "a request failed"
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=15, help="rounds that count")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    parser.add_argument("--pairs", action="store_true", help="two requests at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    rng, before = random.Random(args.seed), load()
    results = {name: [] for name in SHAPES}
    with Up(SHAPES["tp 2, 1 thread a rank"]) as a, Up(SHAPES["tp 1, 2 threads"]) as b, Up(SHAPES["tp 1, 1 thread"]) as c:
        for index in range(-2, args.requests):
            for name, cluster in zip(SHAPES, (a, b, c)):
                prompts = [fresh_prompt(rng, args.prompt) for _ in range(2 if args.pairs else 1)]
                answers = ask_at_once(cluster.client, prompts, args.tokens)
                if index >= 0:
                    results[name] += answers
    print(f"{len(next(iter(results.values())))} prompts of {args.prompt} tokens each, {2 if args.pairs else 1} at once; "
          f"median / p90 / largest; load {before:g} before, {load():g} after")
    first = next(iter(SHAPES))
    for name, found in results.items():
        ratios = [statistics.median(mine[key] / theirs[key] for mine, theirs in zip(found, results[first]))
                  for key in ("ttft_ms", "tpot_ms")]
        print(f"{name}: TTFT {show(three([r['ttft_ms'] for r in found], 0))} ms, TPOT "
              f"{show(three([r['tpot_ms'] for r in found]))} ms; median of the ratios to the first: {ratios[0]:.2f}, {ratios[1]:.2f}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clusters are stopped
    main()
