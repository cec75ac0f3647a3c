"""Requests of the traces in bench/traces, made small enough for a small model: lengths divided, arrivals kept apart as they
are but for one factor, and prompts that share exactly the prefixes that the trace says.
"""
import csv
import dataclasses
import datetime
import json
import pathlib
import random

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "traces"
BLOCK = 512  # tokens that one of Mooncake's hash ids names
NAMES = {"mooncake-conversation": "mooncake_conversation_2000.jsonl", "mooncake-synthetic": "mooncake_synthetic_2000.jsonl",
         "azure-conversation": "azure2023_conv_2000.csv", "azure-code": "azure2023_code_2000.csv"}


@dataclasses.dataclass
class Request:
    at: float      # seconds from the first one
    prompt: list
    max_tokens: int


def _block_tokens(name, hash_id, count, vocab):
    rng = random.Random(f"{name} {hash_id}")
    return [rng.randrange(500, vocab) for _ in range(count)]


def load(name, count, divide, longest, vocab=40000):
    """The first `count` requests; a prompt has at most `longest` tokens, an answer at least two."""
    path = FOLDER / NAMES[name]
    out = []
    if path.suffix == ".jsonl":
        per_block = max(1, BLOCK // divide)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[:count]):
            row = json.loads(line)
            prompt = [t for h in row["hash_ids"] for t in _block_tokens(name, h, per_block, vocab)]
            # The last block is not whole: what is in it is the request's own.
            keep = max(1, min(longest, row["input_length"] // divide))
            own = _block_tokens(name, f"own {number}", min(keep, 8), vocab)
            prompt = (prompt[:keep - len(own)] + own)[:keep]
            out.append(Request(row["timestamp"] / 1000, prompt, max(2, row["output_length"] // divide)))
    else:
        with open(path, encoding="utf-8") as file:
            for number, row in zip(range(count), csv.DictReader(file)):
                at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
                keep = max(1, min(longest, int(row["ContextTokens"]) // divide))
                out.append(Request(at, _block_tokens(name, number, keep, vocab), max(2, int(row["GeneratedTokens"]) // divide)))
    first = out[0].at
    for request in out:
        request.at -= first
    return out
