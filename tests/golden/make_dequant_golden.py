#!/usr/bin/env python3
"""Writes tests/golden/dequant.txt: quantised blocks and the f32 bits that the PyPI package `gguf` makes of them.

Needs: pip install gguf numpy. Deterministic; run it from the repository root. Blocks are random bytes, with the f16
fields (scales, minima) set to ordinary values first and to edge values after: zeros, subnormals, the largest finite
number, negatives, infinities and NaN. NaN is written as 7fc00000 whatever its payload: payloads are not promised.
"""
import importlib.metadata
import random

import gguf
import numpy as np

TYPES = {  # name: positions of the f16 fields in a block
    "F32": [], "F16": [], "BF16": [],
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
PLAIN = 32  # elements of an F32, F16 or BF16 line
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]


def blocks(rng, name):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    fields = TYPES[name]
    if not fields:
        for _ in range(4):
            yield rng.randbytes(size * PLAIN)
        return
    ordinary = 4
    # Wide blocks get every second edge: the file stays small.
    edges = EDGES if elements == 32 else EDGES[::2]
    for n in range(ordinary + len(edges)):
        block = bytearray(rng.randbytes(size))
        for i, at in enumerate(fields):
            value = rng.uniform(-0.1, 0.1) if n < ordinary else None
            bits = int(np.float16(value).view(np.uint16)) if n < ordinary else edges[(n - ordinary + 3 * i) % len(edges)]
            block[at : at + 2] = bits.to_bytes(2, "little")
        yield bytes(block)


def main():
    rng = random.Random(20240607)
    np.seterr(all="ignore")
    with open("tests/golden/dequant.txt", "w") as out:
        out.write("# Made by tests/golden/make_dequant_golden.py with gguf %s: type, block bytes, f32 bits (hex).\n"
                  % importlib.metadata.version("gguf"))
        for name in TYPES:
            for data in blocks(rng, name):
                values = gguf.quants.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType[name])
                bits = values.astype(np.float32).view(np.uint32).copy()
                bits[np.isnan(values)] = 0x7FC00000
                out.write("%s %s %s\n" % (name, data.hex(), "".join("%08x" % b for b in bits)))


if __name__ == "__main__":
    main()
