"""Plots what batching_bench wrote: latencies of continuous against static batching, and their throughput.

  python3 -m venv V && V/bin/pip install matplotlib
  V/bin/python bench/plot_batching.py batching.json docs/plots/batching.svg
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"continuous": "#1f77b4", "static": "#d62728"}
matplotlib.rcParams.update({"svg.hashsalt": "sluice", "svg.fonttype": "none"})  # the same figures give the same file


def distribution(ax, panel, key, title):
    for name, colour in COLOURS.items():
        values = sorted(panel[name][key])
        share = [(i + 1) / len(values) for i in range(len(values))]
        ax.step(values, share, where="post", color=colour, label=name)
        mean = panel[name][key[:-1] if key == "ttfts" else "latency"]["mean"]
        ax.axvline(mean, color=colour, linestyle=":", linewidth=1)
    ax.set_title(title, fontsize=9)
    ax.set_xlim(left=0)
    ax.set_ylim(0, 1.02)
    ax.grid(alpha=0.3)


def main():
    source, target = sys.argv[1:3]
    with open(source) as file:
        data = json.load(file)
    panels = [("all at once", data["all_at_once"])]
    panels += [(f"arrivals at {p['load']:.0%} of capacity", p) for p in data.get("loads", [])]
    figure, axes = plt.subplots(2, len(panels) + 1, figsize=(3.1 * (len(panels) + 1), 5.6))
    for column, (name, panel) in enumerate(panels):
        distribution(axes[0][column], panel, "ttfts", f"{name}\nTTFT, s")
        distribution(axes[1][column], panel, "latencies", "end to end, s")
    axes[0][0].set_ylabel("share of requests")
    axes[1][0].set_ylabel("share of requests")
    axes[0][0].legend(fontsize=8)
    for ax, key, title in ((axes[0][-1], "tokens_per_second", "all at once\noutput tokens/s"),
                           (axes[1][-1], "steps", "all at once, steps needed")):
        values = [data["all_at_once"][name][key] for name in COLOURS]
        ax.margins(y=0.15)
        ax.bar_label(ax.bar(list(COLOURS), values, color=list(COLOURS.values())), fmt="%.0f", fontsize=8)
        ax.set_title(title, fontsize=9)
    figure.suptitle(f"{data['requests']} requests of the Azure 2023 conversation trace, prompts 1/{data['prompt_scale']:g} "
                    f"(mean {data['mean_prompt']:.0f}), answers 1/{data['answer_scale']:g} "
                    f"(mean {data['mean_answer']:.0f}), batch {data['batch']}; dotted: means", fontsize=9)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


main()
