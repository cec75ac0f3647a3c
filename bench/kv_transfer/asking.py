"""What the benchmarks of whole clusters share: fresh prompts, one request with its figures, and statistics.

They need the Python environment of the end-to-end tests, which deploy/test makes: ~/.cache/sluice/venv/bin/python.
"""
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from cluster import BUILD, Cluster, Server, real_model  # noqa: E402, F401

COMMON = (500, 40000)  # ids of ordinary tokens


def fresh_prompt(rng, length):
    """Random tokens: no prefix of it is in any cache."""
    return [rng.randrange(*COMMON) for _ in range(length)]


def ask(client, prompt, tokens):
    """One request. Times in ms: `gaps` between the client's tokens, the rest as the servers tell it."""
    arrivals, timing = [], None
    for response in client.stream(prompt, timeout=300, max_tokens=tokens, ignore_eos=True, temperature=0):
        now = time.monotonic()
        arrivals += [now] * sum(len(delta.token_ids) for delta in response.choices)
        if response.HasField("timing"):
            timing = response.timing
    assert len(arrivals) == tokens and timing is not None, f"{len(arrivals)} tokens of {tokens}"
    handed_over = [entry for entry in timing.timeline if entry.name == "transfer_done"]
    return {"ttft_ms": timing.ttft_ms, "tpot_ms": timing.tpot_ms,
            "exposed_ms": handed_over[-1].amount / 1000 if handed_over else None,
            "gaps": [1000 * (b - a) for a, b in zip(arrivals, arrivals[1:])],
            "timeline": [(e.name, e.at_ms, e.worker, e.amount) for e in timing.timeline]}


def quantile(values, share):
    """The value at that rank, without interpolation."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def three(values, digits=1):
    """Median, p90 and largest."""
    return [round(v, digits) for v in (statistics.median(values), quantile(values, 0.9), max(values))]


def show(values):
    return " / ".join(f"{v:g}" for v in values)


def load():
    return float(pathlib.Path("/proc/loadavg").read_text(encoding="ascii").split()[0])
