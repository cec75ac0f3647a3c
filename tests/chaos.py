"""Processes that are killed, stopped, broken and restarted at random under load: never a wrong token, never a hang,
nothing leaks.

  tests/chaos.py [--seconds 150] [--seed N] [--model tiny|real|PATH] [--prefill 2] [--decode 2] [--tp 2] [--json F]

A seeded pool of requests is answered alone first, by one worker of role both. Then clients ask for random ones of the
pool all the time, over gRPC and HTTP; some go away, some give deadlines. A seeded schedule (chaos_plan.py) meanwhile
kills, terminates and stops processes and ranks and restarts them on their ports, restarts prefill workers whose
transfers break, and sends strangers to every port. A run is phases of 20 s (--phase); after each the faults pause:

  - all processes are there, and active again;
  - all requests have ended; all blocks are free in time, 2 s after the last client, lease + 2 s after a silence;
  - the next requests are right, and none of them fails;
  - no server wrote an error that nothing explains;
  - open files, and in rounds of many phases memory, of the processes that lived on are where they were.

And always: chaos_judge.py. Every fault is proven before it is counted. --seed N repeats a schedule, though not what
the machine makes of it. Some phases are a round, with a cluster of its own. The logs of a run that failed are kept.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import sys
import tempfile
import threading
import time

import grpc

import chaos_plan
import chaos_strangers
from chaos_ask import by_grpc, by_http, make_pool
from chaos_judge import GRACE, LONGEST, Disturbances, judge, moved_for
from chaos_slots import Slot, free_port
from cluster import Cluster, real_model, tiny_model, wait_until
from soak_ask import Cancel, HttpConnection
from soak_watch import rise, sample
from sluice_client import Client

FREE_WITHIN = 2  # seconds, promised
LEASE = 5  # three would not outlast a short stop of the router on a busy machine
BLOCKS, CONTEXT = 160, 2048
LONG_RUN = 600  # seconds, from which every kind of event is owed
FLAT_FROM = 8   # quiet samples of a process
FAULTS_KEPT = 40


class Gate:
    """Lets clients in while it is open, and knows how many are inside."""

    def __init__(self):
        self._changed = threading.Condition()
        self._open = False
        self._inside = 0

    def enter(self, until):
        """False when it did not open before `until()` was true."""
        with self._changed:
            while not self._open:
                if until():
                    return False
                self._changed.wait(0.1)
            self._inside += 1
            return True

    def leave(self):
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def open(self):
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self, timeout):
        """And waits until nobody is inside. False: somebody stays."""
        with self._changed:
            self._open = False
            return self._changed.wait_for(lambda: self._inside == 0, timeout)


class Tally:
    """Counts and faults of a whole run; any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = collections.Counter()    # (what, kind)
        self.outcomes = collections.Counter()  # (way, code)
        self.slowest = 0.0  # of requests, seconds while nothing stood still
        self.moved = 0      # requests that went on at other workers
        self.faults = []

    def count(self, what, kind, number=1):
        with self.lock:
            self.events[what, kind] += number

    def wrong(self, what):
        with self.lock:
            self.faults.append(what)
            if len(self.faults) <= FAULTS_KEPT:
                print(f"chaos: FAULT: {what[:3000]}", flush=True)


class Round:
    """A cluster and what happens to it."""

    def __init__(self, plan, options, pool, model, tally):
        self.plan, self.options, self.pool, self.tally = plan, options, pool, tally
        self.count, self.wrong = tally.count, tally.wrong
        self.disturbances = Disturbances()
        self.corrupted = False  # a fault that corrupts was planned
        self.gate = Gate()
        self.over = False
        rng = random.Random(f"{options.seed} ports {os.getpid()}")
        flags = ["--threads", 1, "--kv-blocks", BLOCKS, "--max-context", CONTEXT, "--lease-ms", LEASE * 1000]
        self.cluster = Cluster(workers=0, model=model, worker_flags=flags)
        self.http_port = free_port(rng)
        self.slots = {"router": Slot(self, "router", "router", free_port(rng), [])}
        for name, own in plan.flags.items():
            self.slots[name] = Slot(self, name, chaos_plan.role_of(name), free_port(rng), own)
        self.lives = {}  # by (slot, pid): samples of quiet moments
        self._state = None

    def state(self):
        return self._state.state(timeout=2)

    # ---- life ----

    def run(self):
        # Threads that live as long as the servers, which the system kills when the thread that started them ends.
        with concurrent.futures.ThreadPoolExecutor(len(self.slots) + 1) as actors:
            try:
                self._run(actors)
            except BaseException as error:
                self.wrong(f"round {self.plan.number}: {type(error).__name__}: {error}")
                if not isinstance(error, AssertionError):
                    raise
            finally:
                self.over = True
                if self.tally.faults:
                    self.cluster.keep = True
                    print(f"chaos: the logs are in {self.cluster.folder}", flush=True)
                if self._state:
                    self._state.close()
                self.cluster.close()

    def _run(self, actors):
        actors.submit(self.slots["router"].start).result()
        self._state = Client(self.cluster.address)
        workers = [s for s in self.slots.values() if s.role != "router"]
        for start in [actors.submit(s.start) for s in workers]:
            start.result()
        clients = [threading.Thread(target=self._client, args=(i,), daemon=True) for i in range(self.options.clients)]
        for thread in clients:
            thread.start()
        self._quiet(0, time.monotonic())
        for number, events in enumerate(self.plan.phases):
            if time.monotonic() >= self.options.until or len(self.tally.faults) >= FAULTS_KEPT:
                break
            self._phase(actors, number, events)
        self.over = True
        for thread in clients:
            thread.join(LONGEST)
        self._check_lives()
        for slot in [*workers, self.slots["router"]]:
            slot.terminate_for_good()

    def _phase(self, actors, number, events):
        began = time.monotonic()
        before = collections.Counter(self.tally.outcomes)
        happened = sum(self.tally.events.values())
        self.gate.open()
        acts = [actors.submit(self._act, slot, began, [e for e in events if e.slot == slot])
                for slot in [*self.slots, "strangers"]]
        for act in acts:
            act.result()
        time.sleep(max(0, began + self.options.phase - time.monotonic()))
        if not self.gate.close(LONGEST + 10):
            self.wrong(f"requests hang {LONGEST + 10} s after the last fault: {self.state()}")
        quiet = self._quiet(number + 1, time.monotonic())
        ended = self.tally.outcomes - before
        ok = sum(n for (_, code), n in ended.items() if code == "OK")
        print(f"chaos: round {self.plan.number} phase {number + 1}: {sum(self.tally.events.values()) - happened} events, "
              f"{sum(ended.values())} requests, {ok} of them whole; {quiet}; {time.monotonic() - began:.0f} s, "
              f"{len(self.tally.faults)} faults", flush=True)

    # ---- faults ----

    def _act(self, name, began, events):
        """All events of a slot in a phase."""
        for event in events:
            time.sleep(max(0, began + event.at - time.monotonic()))
            try:
                if name == "strangers":
                    self._strangers(event)
                else:
                    self.slots[name].carry_out(event)
            except Exception as error:  # pylint: disable=broad-except
                self.wrong(f"{event}: {type(error).__name__}: {error}")
                if name != "strangers" and self.slots[name].server.process.poll() is not None:
                    self.slots[name].start()

    def _strangers(self, event):
        if event.kind == "ambush":
            decode = [slot for slot in self.slots.values() if slot.role == "decode"]
            reached = chaos_strangers.ambush(decode, event.which, 2.5)
            self.count("strangers", "ambush" if reached else "ambush, nobody came", max(1, reached))
        else:
            there = chaos_strangers.visit(self.slots[event.target], event.kind, event.which)
            self.count("strangers", event.kind if there else "not let in")

    # ---- clients ----

    def _client(self, number):
        rng = random.Random(f"{self.options.seed} {self.plan.number} {number}")
        client = Client(self.cluster.address, like=self._state)
        http = HttpConnection(f"127.0.0.1:{self.http_port}")
        try:
            while self.gate.enter(lambda: self.over):
                try:
                    seen = self._one(rng, client, http)
                finally:
                    self.gate.leave()
                if seen.code != "OK":
                    time.sleep(0.05)
        except Exception as error:  # a thread's exception would be lost  # pylint: disable=broad-except
            self.wrong(f"client {number}: {type(error).__name__}: {error}")
        http.close()
        client.close()

    def _one(self, rng, client, http, plain=False):
        index = rng.randrange(len(self.pool))
        ask, alone = self.pool[index]
        kind = "plain" if plain else rng.choice(["plain"] * 9 + ["cancel"] * 3 + ["close"] + ["deadline"] * 2)
        way = rng.choice(["grpc"] * 5 + ["http", "sse"]) if kind in ("plain", "cancel") and not plain else "grpc"
        if ask.fields.get("n", 1) > 1:
            way = "grpc"
        cancel = Cancel(rng) if kind in ("cancel", "close") else None
        began = time.monotonic()
        if way == "grpc":
            timeout_ms = int(10 ** rng.uniform(0.5, 3.3)) if kind == "deadline" else 0
            seen = by_grpc(client, ask, timeout_ms, cancel, kind == "close")
        else:
            seen = by_http(http, ask, way == "sse", cancel)
        seen.began, seen.ended, seen.left = began, time.monotonic(), bool(cancel and cancel.done)
        self._judge(index, ask, alone, seen, kind)
        return seen

    def _judge(self, index, ask, alone, seen, kind):
        disturbances = self.disturbances.during(seen.began, seen.ended)
        lost = re.search(r"lost while the request was (\w+(?: reserved)?)", seen.detail)
        with self.tally.lock:
            self.tally.outcomes[kind if kind != "plain" else seen.way, seen.code] += 1
            self.tally.moved += seen.moves > 0
            self.tally.slowest = max(self.tally.slowest, moved_for(seen, disturbances))
            if lost:
                self.tally.events["worker lost", f"while {lost.group(1)}"] += 1
        wrong = judge(seen, alone, disturbances)
        if wrong:
            length = len(ask.prompt)
            self.wrong(f"{kind} request {index} over {seen.way} ({length} of prompt, {ask.fields}), begun "
                       f"{seen.ended - seen.began:.2f} s before its end: {wrong}; meanwhile: "
                       f"{[(d.slot, d.kind) for d in disturbances]}")

    # ---- quiet ----

    def _quiet(self, phase, since):
        """Faults and clients have paused at `since`. Returns what to tell."""
        recent = [d for d in self.disturbances.during(since - LEASE - FREE_WITHIN - GRACE, since) if d.kind == "long stop"]
        bound = FREE_WITHIN + (LEASE if recent else 0)
        for slot in self.slots.values():
            slot.check_alive()
        wait_until(self._all_active, 20, lambda: f"all workers active:\n{self._state_or_error()}")
        took = self._all_free(max(0.5, bound - (time.monotonic() - since)))
        # From here on nothing excuses an error.
        time.sleep(max(0, self.disturbances.last_end() + GRACE - time.monotonic()))
        rng = random.Random(f"{self.options.seed} {self.plan.number} quiet {phase}")
        for _ in range(12):
            self._one(rng, self._state, None, plain=True)
        self._all_free(FREE_WITHIN)
        for slot in self.slots.values():
            slot.check_log()
            self.lives.setdefault((slot.name, slot.server.process.pid), []).append(
                (time.monotonic(), *map(sum, zip(*map(sample, slot.pids()), strict=True))))
        self._note_hits()
        self.disturbances.forget(time.monotonic() - LONGEST)
        return f"free {1000 * (time.monotonic() - since if took is None else took):.0f} ms after"

    def _state_or_error(self):
        try:
            return self.state()
        except grpc.RpcError as error:
            return error

    def _all_active(self):
        try:
            return {w.pid for w in self.state().workers if w.state == 1} == {
                s.server.process.pid for s in self.slots.values() if s.role != "router"}
        except grpc.RpcError:
            return False

    def _all_free(self, within):
        began = time.monotonic()

        def free():
            state = self.state()
            return state.queued == state.running == 0 and all(
                w.blocks_free == w.blocks_total and w.running == w.waiting == 0 for w in state.workers if w.state == 1)
        try:
            wait_until(free, within, self.state)
        except AssertionError as error:
            self.wrong(f"blocks are not free: {error}")
        return time.monotonic() - began

    def _note_hits(self):
        for worker in self.state().workers:
            if worker.state == 1 and worker.engine.hit_tokens:
                self.count({1: "prefill", 2: "decode"}[worker.role], "prefix hits seen")

    def _check_lives(self):
        """Samples are (time, KiB of its own, KiB of files, open files, threads)."""
        for (name, pid), samples in self.lives.items():
            if len(samples) < 3:
                continue
            self.count(chaos_plan.role_of(name), "lived through three phases")
            files = [s[3] for s in samples]
            # The first sample is older than the first client. Their connections to a router come and go.
            if min(files[-2:]) > files[1] + (2 * self.options.clients if name == "router" else 2):
                self.wrong(f"{name} (process {pid}): open files grow: {files}")
            half = [(s[0], s[1]) for s in samples[len(samples) // 2:]]
            kib = [s[1] for s in samples]
            allowed = max(4096, kib[-1] / 25)  # arenas come and go by a MiB or two
            if len(samples) >= FLAT_FROM and rise(half) > allowed:
                self.wrong(f"{name} (process {pid}): memory grows by more than {allowed:.0f} KiB: {kib} KiB")
            if self.options.verbose:
                print(f"chaos: {name}: open files {files}, KiB {kib}", flush=True)


def answer_alone(options, model):
    rng = random.Random(f"{options.seed} pool")
    pool = make_pool(rng, options.pool, options.longest, 290 if options.model == "tiny" else 40000)
    with Cluster(model=model, worker_flags=["--kv-blocks", BLOCKS, "--max-context", CONTEXT]) as both:
        answers = []
        for ask in pool:
            seen = by_grpc(both.client, ask)
            if seen.code != "OK" or not seen.whole():
                raise AssertionError(f"alone: {seen}: {ask}")
            answers.append(seen)
    return list(zip(pool, answers, strict=True))


def chaos(options):
    """Returns the figures, of which `faults` is empty when all is well."""
    print(f"chaos: seed {options.seed}", flush=True)
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as home:
        if options.model == "tiny":
            model = tiny_model(home)
        else:
            model = real_model() if options.model == "real" else options.model
        pool = answer_alone(options, model)
        print(f"chaos: {len(pool)} answers alone after {time.monotonic() - began:.0f} s", flush=True)
        options.until = time.monotonic() + options.seconds
        size = chaos_plan.Size(options.prefill, options.decode, options.tp, options.phase, options.phases)
        number = 0
        while (time.monotonic() < options.until and len(tally.faults) < FAULTS_KEPT
               and number < (options.rounds or float("inf"))):
            plan = chaos_plan.make_round(options.seed, number, size)
            flags = {slot: " ".join(map(str, own)) for slot, own in plan.flags.items()}
            print(f"chaos: round {number}: {flags}, never killed: {sorted(plan.steady)}", flush=True)
            Round(plan, options, pool, model, tally).run()
            number += 1
    missing = check_kinds(size, options, tally)
    return {**report(options, tally, time.monotonic() - began, number), "never": missing}


def check_kinds(size, options, tally):
    """A kind of event that did not take place proves nothing."""
    owed = chaos_plan.kinds(size) | {("prefill", "prefix hits seen"), ("decode", "prefix hits seen")}
    missing = sorted(k for k in owed if not tally.events[k])
    if missing and options.seconds >= LONG_RUN:
        tally.wrong(f"these events never took place: {missing}")
    return missing


def report(options, tally, wall, rounds):
    def nested(counter):
        out = {}
        for (what, kind), number in sorted(counter.items()):
            out.setdefault(what, {})[kind] = number
        return out
    kept = {k: v for k, v in vars(options).items() if k not in ("json", "until", "model", "verbose")}
    return {**kept, "model": os.path.basename(str(options.model)), "wall_seconds": round(wall, 1), "rounds": rounds,
            "events": nested(tally.events), "requests": sum(tally.outcomes.values()),
            "slowest_seconds": round(tally.slowest, 2), "moved": tally.moved, "outcomes": nested(tally.outcomes), "faults": tally.faults}


def table(figures):
    lines = [f"{'what':<12} {'event or end':<34} {'count':>8}"]
    for part in ("events", "outcomes"):
        lines += [f"{what:<12} {kind:<34} {number:>8}" for what, kinds in figures[part].items()
                  for kind, number in kinds.items()]
    return "\n".join([*lines, f"seed {figures['seed']}: {figures['requests']} requests in {figures['wall_seconds']} s, "
                              f"the slowest {figures['slowest_seconds']} s, {figures['moved']} moved, {len(figures['faults'])} faults"])


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=150, help="no phase begins later; an hour is 3600")
    parser.add_argument("--phase", type=float, default=20, help="seconds of faults between two quiet moments")
    parser.add_argument("--phases", type=int, default=5, help="of a round, which has a cluster of its own")
    parser.add_argument("--rounds", type=int, default=0, help="at most so many; 0: as --seconds says")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--prefill", type=int, default=2)
    parser.add_argument("--decode", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2, help="ranks of half of the workers")
    parser.add_argument("--pool", type=int, default=60, help="requests that are answered alone first")
    parser.add_argument("--longest", type=int, default=1000, help="tokens of a prompt")
    parser.add_argument("--model", default="tiny", help="tiny, real, or the path of one")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", default="", help="where the figures go; - is stdout")
    parser.add_argument("--verbose", action="store_true", help="also files and memory of each process")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.randrange(1 << 30)
    return options


def main():
    options = parse()
    figures = chaos(options)
    print(table(figures), flush=True)
    if options.json == "-":
        print(json.dumps(figures, indent=1))
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            out.write(json.dumps(figures, indent=1) + "\n")
    sys.exit(1 if figures["faults"] else 0)


if __name__ == "__main__":
    main()
