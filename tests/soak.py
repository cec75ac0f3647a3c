"""Many clients that come and go for minutes, on real processes: nothing leaks, nothing is wrong, nothing fails.

  tests/soak.py [--seconds 300] [--clients 16] [--prefill 1] [--decode 1] [--model tiny|real|PATH] [--seed N] [--json F]

A seeded pool of requests (text and token prompts of 1 to 1,500 tokens, 1 to 64 tokens to answer, greedy and sampled,
stops) is answered alone first. Then the clients ask for random ones of the pool, over gRPC and HTTP, streamed and not;
about a third go away at a random moment, some at once. Asked for at the end:

  - every answer that was not cancelled has the text and the bits of the one alone, what came of a cancelled one begins it;
  - no error but the cancels;
  - two seconds after the last client all blocks are free, and no request is left anywhere;
  - open files are back where they were, no server wrote an error to its log, all are alive;
  - memory is flat (soak_watch.py says what that is); of runs of less than two minutes it is only reported.
"""
import argparse
import collections
import json
import os
import random
import re
import sys
import threading
import time

from cluster import Cluster, real_model, wait_until
from soak_ask import TIMEOUT, WAYS, Cancel, Got, HttpConnection, by_grpc, make_ask
from soak_watch import Watch, sample
from sluice_client import Background

BOUND = 2  # seconds, promised
CONTEXT = 2048
KV_BLOCKS = CONTEXT // 16  # one request can use all of it, and many wait for room
FLAT_FROM = 120  # seconds


class Soak:
    def __init__(self, cluster, options):
        self.cluster, self.options = cluster, options
        self.http_address = cluster.router.fields["http"]
        self.rng = random.Random(options.seed)
        self.servers = {"router": cluster.router} | {f"{w.role} {i}": w for i, w in enumerate(cluster.workers)}
        self.counts = collections.Counter()
        self.faults = []  # what must not be
        self.lock = threading.Lock()

    def fault(self, what):
        with self.lock:
            self.faults.append(what)
            if len(self.faults) <= 20:
                print(f"soak: FAULT: {what}", file=sys.stderr, flush=True)

    def idle(self):
        state = self.cluster.client.state()
        return (state.queued == 0 and state.running == 0 and len(self.cluster.active()) == len(self.cluster.workers)
                and all(w.running == 0 and w.waiting == 0 and w.blocks_free == w.blocks_total for w in state.workers))

    def touch_the_pools(self):
        """Every block is written once, so that the pool's pages do not look like growth."""
        prompt = [3 + i % 250 for i in range(CONTEXT - 16)]
        calls = [Background(self.cluster.client, prompt[i:] + prompt[:i], max_tokens=16, ignore_eos=True,
                            timeout=TIMEOUT) for i in range(max(self.options.prefill, self.options.decode))]
        for call in calls:
            call.join(TIMEOUT)
            if call.error:
                raise call.error

    def answer_alone(self, vocab):
        pool = []
        for _ in range(self.options.pool):
            ask = make_ask(self.rng, self.options.longest, vocab)
            alone = by_grpc(self.cluster.client, ask)
            if alone.error or not alone.finish:
                raise AssertionError(f"alone: {alone.error or 'no end'}: {ask}")
            pool.append((ask, alone))
        return pool

    def one(self, rng, http, pool):
        index = rng.randrange(len(pool))
        ask, alone = pool[index]
        way = rng.choice(WAYS)
        cancel = Cancel(rng) if rng.random() < 0.35 else None
        if way == "grpc":
            got = by_grpc(self.cluster.client, ask, cancel)
        else:
            got = http.ask(ask, way == "sse", cancel)
        cancelled = bool(cancel and cancel.done) and not got.finish
        whole = Got(got.text, got.logprobs, got.finish, got.tokens) == alone
        with self.lock:
            self.counts[f"{way} {'cancelled' if cancelled else 'failed' if got.error else 'whole'}"] += 1
        name = f"request {index} over {way}"
        if got.error:
            self.fault(f"{name}: {got.error}")
        elif cancelled or (cancel and cancel.done and way == "sse"):  # the usage may be missing
            if not got.begins(alone):
                self.fault(f"{name}, cancelled: {got} does not begin {alone}")
        elif not whole:
            self.fault(f"{name}: {got} is not {alone}")

    def client(self, number, pool, until):
        rng = random.Random(f"{self.options.seed} {number}")
        http = HttpConnection(self.http_address)
        try:
            while time.monotonic() < until and len(self.faults) < 100:
                self.one(rng, http, pool)
        except Exception as error:  # a thread's exception would be lost  # pylint: disable=broad-except
            self.fault(f"client {number}: {type(error).__name__}: {error}")
        http.close()

    def run(self):
        vocab = 290 if self.options.model == "tiny" else 40000
        began = time.monotonic()
        self.cluster.check_alive()
        self.touch_the_pools()
        pool = self.answer_alone(vocab)
        wait_until(self.idle, BOUND, self.cluster.client.state)
        files = {name: sample(server.process.pid)[2] for name, server in self.servers.items()}
        print(f"soak: {len(pool)} answers alone after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        until = time.monotonic() + self.options.seconds
        with Watch({name: server.process.pid for name, server in self.servers.items()}) as watch:
            clients = [threading.Thread(target=self.client, args=(i, pool, until), daemon=True)
                       for i in range(self.options.clients)]
            for thread in clients:
                thread.start()
            for thread in clients:
                thread.join()
        self.check_end(files)
        return self.report(watch.report())

    def check_end(self, files):
        try:
            wait_until(self.idle, BOUND, lambda: f"all free and idle:\n{self.cluster.client.state()}")
        except AssertionError as error:
            self.fault(str(error))
        for name, server in self.servers.items():
            if server.process.poll() is not None:
                self.fault(f"{name} has ended with {server.process.returncode}:\n{server.text()[-2000:]}")
                continue
            try:
                wait_until(lambda: sample(server.process.pid)[2] <= files[name], 5, "open files as before")
            except AssertionError:
                self.fault(f"{name}: {sample(server.process.pid)[2]} open files, {files[name]} before")
            for line in re.findall(r"^[EF]\d{8} .*$", server.text(), re.M):
                self.fault(f"{name} wrote: {line}")
        self.cluster.check_alive()

    def report(self, memory):
        if self.options.seconds >= FLAT_FROM:
            for name, figures in memory.items():
                if not figures["flat"]:
                    self.fault(f"{name}: memory grows: {figures}")
        options = {k: v for k, v in vars(self.options).items() if k not in ("json", "model")}
        return {**options, "answers": dict(sorted(self.counts.items())), "requests": sum(self.counts.values()),
                "memory": memory, "faults": self.faults}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--prefill", type=int, default=1)
    parser.add_argument("--decode", type=int, default=1)
    parser.add_argument("--pool", type=int, default=40, help="requests that are answered alone first")
    parser.add_argument("--longest", type=int, default=1500, help="tokens of a prompt")
    parser.add_argument("--model", default="real", help="tiny, real, or the path of one")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", default="-", help="where the figures go; - is stdout")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.randrange(1 << 30)
    return options


def soak(options):
    print(f"soak: seed {options.seed}", file=sys.stderr, flush=True)
    model = {"tiny": None, "real": None if options.model == "tiny" else real_model()}.get(options.model, options.model)
    threads = max(1, len(os.sched_getaffinity(0)) // (options.prefill + options.decode))
    flags = ["--threads", threads, "--kv-blocks", KV_BLOCKS, "--max-context", CONTEXT]
    with Cluster(workers=0, prefill=options.prefill, decode=options.decode, model=model, worker_flags=flags) as cluster:
        return Soak(cluster, options).run()


def main():
    options = parse()
    figures = soak(options)
    text = json.dumps(figures, indent=1)
    if options.json == "-":
        print(text)
    else:
        with open(options.json, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    sys.exit(1 if figures["faults"] else 0)


if __name__ == "__main__":
    main()
