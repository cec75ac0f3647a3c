"""What the kernels of the CUDA backend could do at best: bytes and operations of each against a GPU's limits.

    python3 bench/cuda/roofline.py [--gpu H100] [--model llama-3.1-8b] [--batch 64] [--context 4096] [--prompt 4096] [--weights int8] [--json]

One row a kernel and layer: bytes that have to move, operations, the time that the slower of the two takes, and what bounds it.
Then a whole step of decode and a whole prompt. What tests/gpu/check measures is held against these numbers: a kernel bound by
memory to 85 % of the anchor (bench/cuda/README.md), prefill attention to 35 % of the tensor cores' peak.
"""
import argparse
import dataclasses
import json

# bf16 dense TFLOP/s of the tensor cores, GB/s of the memory: data sheets of the SXM modules.
GPUS = {"A100": (312, 2039), "H100": (989, 3352), "H200": (989, 4800)}


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int

    @property
    def q(self):
        return self.heads * self.head_dim

    @property
    def kv(self):
        return self.kv_heads * self.head_dim


MODELS = {
    "llama-3.1-8b": Model(32, 4096, 32, 8, 128, 14336, 128256),
    "smollm2-135m": Model(30, 576, 9, 3, 64, 1536, 49152),
}
BF16, F32 = 2, 4
WEIGHTS = {"bf16": 2, "int8": 66 / 64}  # bytes each; int8 with the scale of 64


def product(rows, n, k, out, weight):
    """Bytes and operations of out = a W^T with `out` bytes written a row and `weight` bytes a weight."""
    return n * k * weight + rows * (k * BF16 + out), 2 * rows * n * k


def kernels(m, rows, attention, weight):
    """(name, times a layer or 0 for once a step, bytes, operations) of `rows` rows; attention: (bytes, operations)."""
    x = rows * m.hidden
    yield "norm", 2, x * (F32 + BF16), 4 * x
    yield "q, k, v", 1, *product(rows, m.q + 2 * m.kv, m.hidden, (m.q + 2 * m.kv) * BF16, weight)
    yield "RoPE, KV write", 1, rows * (2 * m.q + 4 * m.kv) * BF16, 6 * rows * (m.q + m.kv)
    yield "attention", 1, *attention
    yield "output", 1, *product(rows, m.hidden, m.q, 2 * m.hidden * F32, weight)
    yield "gate and up", 1, *product(rows, 2 * m.ffn, m.hidden, m.ffn * BF16, weight)
    yield "down", 1, *product(rows, m.hidden, m.ffn, 2 * m.hidden * F32, weight)


def decode(m, batch, context, weight):
    kv = batch * context * 2 * m.kv * BF16
    attention = (kv + 2 * batch * m.q * BF16, 4 * batch * context * m.q)
    yield from kernels(m, batch, attention, weight)
    yield "head", 0, *product(batch, m.vocab, m.hidden, m.vocab * F32, weight)


def prefill(m, prompt, weight):
    """One prompt in one chunk; K and V are read once for each tile of 128 rows and group of heads, but lie in the L2."""
    attention = ((2 * prompt * m.q + 2 * prompt * m.kv) * BF16, 4 * m.q * prompt * (prompt + 1) // 2)
    yield from kernels(m, prompt, attention, weight)
    yield "head", 0, *product(1, m.vocab, m.hidden, m.vocab * F32, weight)


def bounds(rows, layers, gpu):
    """The rows with microseconds and what bounds them, and those of the whole."""
    tflops, gbs = GPUS[gpu]
    out, whole = [], 0.0
    for name, times, size, operations in rows:
        memory, compute = size / gbs / 1e3, operations / tflops / 1e6
        us = max(memory, compute)
        whole += us * (times * layers or 1)
        out.append({"kernel": name, "times": times * layers or 1, "mb": size / 1e6, "gflop": operations / 1e9, "us": us,
                    "bound": "memory" if memory >= compute else "tensor cores"})
    return out, whole


def show(title, rows, whole, tokens):
    print(f"\n{title}: {whole / 1e3:.2f} ms at best, {tokens / whole * 1e6:,.0f} tokens/s")
    print(f"  {'kernel':16} {'times':>6} {'MB':>10} {'GFLOP':>10} {'us':>9}  bound")
    for r in rows:
        print(f"  {r['kernel']:16} {r['times']:6} {r['mb']:10.2f} {r['gflop']:10.2f} {r['us']:9.2f}  {r['bound']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=GPUS, help="default: all")
    parser.add_argument("--model", choices=MODELS, default="llama-3.1-8b")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--weights", choices=WEIGHTS, default="bf16")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if min(args.batch, args.context, args.prompt) < 1:
        parser.error("--batch, --context and --prompt must be at least 1")
    m, weight, result = MODELS[args.model], WEIGHTS[args.weights], {}
    for gpu in [args.gpu] if args.gpu else GPUS:
        steps = {"decode": (*bounds(decode(m, args.batch, args.context, weight), m.layers, gpu), args.batch),
                 "prefill": (*bounds(prefill(m, args.prompt, weight), m.layers, gpu), args.prompt)}
        result[gpu] = {name: {"kernels": rows, "us": whole, "tokens_per_s": tokens / whole * 1e6}
                       for name, (rows, whole, tokens) in steps.items()}
        if not args.json:
            show(f"{gpu}, {args.model}, decode of {args.batch} at {args.context}", *steps["decode"])
            show(f"{gpu}, {args.model}, prefill of {args.prompt}", *steps["prefill"])
    if args.json:
        print(json.dumps({"model": args.model, "batch": args.batch, "context": args.context, "prompt": args.prompt,
                          "gpus": result}, indent=1))


if __name__ == "__main__":
    main()
