#!/usr/bin/env python3
"""Prefill and decode of one engine against llama.cpp: same model file, same threads, in turns, one process at a time.

    bench/peers/install && ninja -C build engine_bench
    bench/peers/kernels.py --rounds 5

Each round runs ours, then theirs, and gives one ratio for each figure; the table has the medians and the spread over the
rounds. Ours is build/engine_bench (greedy sampling included), theirs are llama-bench and llama-batched-bench (no sampling).
A process that others kept from the cores for more than --max-waited of its time runs again: spinning threads, of which
both have some, collapse when one of them is off its core.
"""
import argparse
import json
import signal
import statistics
import sys

import machine

ROWS = ["prefill 512", "decode 1, context 0", "decode 1, context 256", "decode 8, context 256", "decode 32, context 256"]


def run(args, command):
    return machine.run(command, args.max_waited, args.tries)


def ours(args):
    out, how = run(args, [machine.program(args.build, "engine_bench"), args.model, "--threads", args.threads, "--compute",
                          args.compute, "--repetitions", args.repetitions, "--json"])
    rates = json.loads(out)["tokens_per_second"][args.compute]
    return {row: rates[row]["median"] for row in ROWS}, how


def bench(args):
    out, how = run(args, [machine.program(args.peer, "llama-bench"), "-m", args.model, "-t", args.threads, "-p", 512, "-n", 64,
                          "-d", "0,256", "-r", args.repetitions, "-fa", args.flash_attn, "-o", "json"])
    rates = {}
    for test in json.loads(out):
        row = {(512, 0, 0): ROWS[0], (0, 64, 0): ROWS[1], (0, 64, 256): ROWS[2]}.get(
            (test["n_prompt"], test["n_gen"], test["n_depth"]))
        if row:
            rates[row] = statistics.median(test["samples_ts"])
    return rates, how


def batched_bench(args, batch):
    out, how = run(args, [machine.program(args.peer, "llama-batched-bench"), "-m", args.model, "-t", args.threads, "-c",
                          batch * (256 + 64), "-npp", 256, "-ntg", 64, "-npl", batch, "-pps", "-fa", args.flash_attn,
                          "--output-format", "jsonl"])
    test = next(json.loads(line) for line in out.splitlines() if line.startswith("{"))
    return {f"decode {batch}, context 256": test["speed_tg"]}, how


def round_of(args):
    our_rates, our_process = ours(args)
    their_rates, bench_process = bench(args)
    processes = {"engine_bench": our_process, "llama-bench": bench_process}
    for batch in (8, 32):
        rates, processes[f"llama-batched-bench {batch}"] = batched_bench(args, batch)
        their_rates.update(rates)
    return {"ours": our_rates, "theirs": their_rates, "processes": processes}


def spread(values, digits):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def summary(rounds):
    table = {}
    for row in ROWS:
        mine, other = [r["ours"][row] for r in rounds], [r["theirs"][row] for r in rounds]
        table[row] = {"ours": mine, "theirs": other, "ratios": [a / b for a, b in zip(mine, other)],
                      "ratio_of_medians": statistics.median(mine) / statistics.median(other)}
    return table


def markdown(result):
    load = result["load"]
    more = (f"{result['threads']} threads each, compute {result['compute']}, flash attention of llama.cpp "
            f"{result['flash_attn']}; {len(result['rounds'])} rounds; load {load[0]:.1f}–{load[1]:.1f}, waiting for a core at "
            f"most {100 * result['waited']:.1f} % of the time")
    lines = [machine.headline(result, more), "",
             "| tokens/s, median (least–most) | ours | llama.cpp | ratio of medians | ratio per round |",
             "|---|---|---|---|---|"]
    for row, figures in result["table"].items():
        lines.append(f"| {row} | {spread(figures['ours'], 0)} | {spread(figures['theirs'], 0)} | "
                     f"{figures['ratio_of_medians']:.2f} | {spread(figures['ratios'], 2)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    machine.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3, help="of each figure in a round; their median counts")
    parser.add_argument("--compute", default="int8", help="our numerics")
    parser.add_argument("--max-waited", type=float, default=0.08, help="share of a process's time (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=20, help="of a process that had to wait")
    parser.add_argument("--flash-attn", default="on", choices=["auto", "on", "off"], help="of llama.cpp")
    args = parser.parse_args()
    if args.rounds < 1 or args.repetitions < 1 or args.tries < 1 or args.threads < 1:
        parser.error("--rounds, --repetitions, --tries and --threads are numbers from 1 on")
    result = {"facts": machine.facts(), "model": args.model.name, "threads": args.threads, "compute": args.compute,
              "flash_attn": args.flash_attn, "priority": machine.take_priority(),
              "peer_version": machine.peer_version(args.peer), "rounds": []}
    for i in range(args.rounds):
        result["rounds"].append(round_of(args))
        loads = [p["load"] for r in result["rounds"] for p in r["processes"].values()]
        result["load"] = [min(loads), max(loads)]
        result["waited"] = max(p["waited"] for r in result["rounds"] for p in r["processes"].values())
        result["table"] = summary(result["rounds"])
        machine.write(args.out, result, markdown(result))
        last = {row: round(figures["ratios"][-1], 2) for row, figures in result["table"].items()}
        print(f"round {i + 1} of {args.rounds}: {last}", file=sys.stderr)
    print(markdown(result), end="")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left
    try:
        main()
    except machine.Failed as failure:
        sys.exit(f"bench/peers/kernels.py: {failure}")
