#!/usr/bin/env python3
"""One request's timeline: the prompt's chunks as the prefill worker computes them, the pieces of its KV as they land at the
decode worker meanwhile, and the tokens after.

    ~/.cache/sluice/venv/bin/python bench/kv_transfer/plot_timeline.py record timeline.json [--channel tcp]
    python3 -m venv V && V/bin/pip install matplotlib
    V/bin/python bench/kv_transfer/plot_timeline.py plot timeline.json docs/plots/kv_overlap.png

Times are of the workers' logs (GLOG_v=2) and of the client, which share this machine's clock.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import re
import sys
import time

LOG_TIME = r"^I(\d{8} \d\d:\d\d:\d\d\.\d{6}).*"


def times(log, pattern):
    """Of the lines that match: seconds since the epoch, and their numbers."""
    found = re.findall(LOG_TIME + pattern, log, re.M)
    return [(datetime.datetime.strptime(at, "%Y%m%d %H:%M:%S.%f").timestamp(), *map(int, numbers))
            for at, *numbers in found]


def read_logs(prefill, decode):
    """The lease of the last request: ends of chunks with their blocks, pieces sent with their bytes, pieces landed."""
    finals = times(prefill, r"KV blocks \[(\d+), (\d+)\) of lease (\d+) are final")
    lease = finals[-1][3]
    ends = {(begin, end): at for at, begin, end, of in finals if of == lease}  # with the last of its layers
    return ([(at, begin, end) for (begin, end), at in ends.items()],
            [(at, size) for at, _, of, size in
             times(prefill, r"KV piece (\d+) of lease (\d+) is sent, (\d+) bytes") if of == lease],
            [at for at, _, of in times(decode, r"KV piece (\d+) of lease (\d+) has landed") if of == lease])


def record(args):
    os.environ["GLOG_v"] = "2"
    from asking import Cluster, fresh_prompt, real_model
    rng = random.Random(args.seed)
    with Cluster(workers=0, prefill=1, decode=1, model=real_model(),
                 worker_flags=["--threads", 1, "--kv-channel", args.channel]) as cluster:
        for _ in range(2):  # the first one warms up
            asked, arrivals, timeline = time.time(), [], []
            for response in cluster.client.stream(fresh_prompt(rng, args.prompt), timeout=300, max_tokens=args.tokens,
                                                  ignore_eos=True, temperature=0):
                arrivals += [time.time()] * sum(len(d.token_ids) for d in response.choices)
                timeline += [(e.name, e.at_ms, e.amount) for e in response.timing.timeline]
        time.sleep(0.2)
        prefill, decode = (cluster.of_role(role)[0].text() for role in ("prefill", "decode"))
    chunks, sent, landed = read_logs(prefill, decode)
    if len(sent) != len(landed) or not chunks:
        sys.exit(f"{len(chunks)} chunks, {len(sent)} pieces sent and {len(landed)} landed: the logs do not fit")
    ms = lambda at: round(1000 * (at - asked), 3)  # noqa: E731
    exposed = [amount for name, _, amount in timeline if name == "transfer_done"]
    args.data.write_text(json.dumps({
        "prompt": args.prompt, "channel": args.channel, "exposed_ms": exposed[0] / 1000,
        "chunks": [(ms(at), begin, end) for at, begin, end in chunks],
        "sent": [(ms(at), size) for at, size in sent], "landed": [ms(at) for at in landed],
        "tokens": [ms(at) for at in arrivals]}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(chunks)} chunks, {len(landed)} pieces, {sum(size for _, size in sent) / 1e6:.1f} MB, exposed "
          f"{exposed[0] / 1000:.1f} ms of a TTFT of {ms(arrivals[0]):.0f} ms")


def lanes(ax, data, left, right):
    """What happened from `left` to `right`: computing at P, pieces from ready to landed, tokens at the client."""
    begin = 0
    for i, (end, _, _) in enumerate(data["chunks"]):
        ax.barh(2, end - begin, left=begin, height=0.6, color=("#1f77b4", "#6baed6")[i % 2])
        begin = end
    total, landed_bytes, last = sum(size for _, size in data["sent"]), 0, data["chunks"][-1][2]
    for (sent, size), landed in zip(data["sent"], data["landed"]):
        # The piece could go when the chunk that holds its last block was done, or layers of it sooner.
        landed_bytes += size
        ready = min(sent, next(at for at, _, end in data["chunks"] if end >= landed_bytes / total * last - 0.5))
        ax.barh(1, landed - ready, left=ready, height=0.6, color="#ff7f0e", edgecolor="#ff7f0e", linewidth=1)
        if right - left < 500 and left < landed < right:
            ax.text(landed + (right - left) / 100, 1, f"{size / 1e6:.1f} MB in {landed - ready:.1f} ms", fontsize=6, va="center",
                    clip_on=True)
    ax.plot(data["tokens"], [0] * len(data["tokens"]), "|", color="#2ca02c", markersize=14)
    ax.axvline(data["chunks"][-1][0], color="black", linewidth=0.8, linestyle=":")
    ax.set_yticks([2, 1, 0], ["chunks computed\nby P", "KV under way,\nready to landed", "tokens at\nthe client"], fontsize=8)
    ax.set_ylim(-0.6, 2.6)
    ax.set_xlim(left, right)
    ax.tick_params(axis="x", labelsize=8)


def plot(args):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    data = json.loads(args.data.read_text(encoding="utf-8"))
    figure, axes = plt.subplots(3, 1, figsize=(8, 5.6), layout="constrained")
    figure.suptitle(f"One request of {data['prompt']:,} tokens over {data['channel']}: exposed {data['exposed_ms']:.1f} of "
                    f"{data['tokens'][0]:,.0f} ms to the first token. Dotted: end of prefill", fontsize=9)
    chunks = [at for at, _, _ in data["chunks"]]
    middle = len(chunks) // 2
    lanes(axes[0], data, 0, data["tokens"][-1] + 10)
    lanes(axes[1], data, chunks[middle] - 20, chunks[min(middle + 3, len(chunks) - 1)] + 20)
    lanes(axes[2], data, chunks[-1] - 30, chunks[-1] + 70)
    for ax, title in zip(axes, ("all of it", "three chunks in the middle", "the end of prefill")):
        ax.set_title(title, fontsize=8)
    axes[-1].set_xlabel("ms since the request", fontsize=8)
    figure.savefig(args.target, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="ask a cluster and write what happened")
    recording.add_argument("data", type=pathlib.Path)
    recording.add_argument("--channel", choices=["shm", "tcp"], default="shm")
    recording.add_argument("--prompt", type=int, default=2000)
    recording.add_argument("--tokens", type=int, default=12)
    recording.add_argument("--seed", type=int, default=1)
    recording.set_defaults(run=record)
    plotting = commands.add_parser("plot", help="draw it")
    plotting.add_argument("data", type=pathlib.Path)
    plotting.add_argument("target", type=pathlib.Path)
    plotting.set_defaults(run=plot)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
