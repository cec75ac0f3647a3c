"""What the kernels are held to on a GPU: anchors (published measurements of the best known kernels) and shares of them.

A bar is a number that a result has to reach: `{"value": measured, "bar": least, "unit": ..., "why": ...}`. GPUs without
an anchor have no bars; every kernel is shown beside what a copy of memory moves on the same GPU.
"""

# bf16 dense TFLOP/s of the tensor cores, GB/s of the memory: data sheets of the SXM modules, as in bench/cuda/roofline.py.
LIMITS = {"A100": (312, 2039), "H100": (989, 3352), "H200": (989, 4800)}

# Share of the memory's bandwidth that the best decode attention reaches, 32 query and 8 KV heads of 128: sequences x context.
DECODE_ATTENTION = {
    "64 x 1024": {"H100": 0.67, "H200": 0.69},
    "64 x 4096": {"H100": 0.91, "H200": 0.83},
    "64 x 8192": {"H100": 0.93, "H200": 0.91},
    "1 x 1024": {"H100": 0.09, "H200": 0.06},
    "1 x 4096": {"H100": 0.30, "H200": 0.21},
    "1 x 32768": {"H100": 0.59, "H200": 0.56},
}
SHARE_OF_ANCHOR = 0.85

# Prefill attention of one prompt of 4,096: of the tensor cores' peak. mma.sync cannot reach the best on an H100.
PREFILL_PROMPT, PREFILL_SHARE = "4096", 0.35

# Weights in int8, 66 bytes for 64, at few rows: so many times as fast as weights in bf16 that come at SHARE_OF_ANCHOR of the
# memory's bandwidth. Nobody else's measurement: what makes keeping them so worth it.
INT8_GAIN, INT8_ROWS, INT8_BYTES = 1.5, ("1 rows", "8 rows"), 66 / 64


def gpu_of(device):
    """"H200" of "NVIDIA H200"; None where there are no anchors."""
    return next((gpu for gpu in LIMITS if gpu in device), None)


def bar_of(result, gpu):
    """The bar of one of kernel_bench's results, or None."""
    if gpu is None:
        return None
    tflops, gbs = LIMITS[gpu]
    if result["kernel"] == "decode attention":
        share = DECODE_ATTENTION.get(result["shape"], {}).get(gpu)
        if share is None:
            return None
        return {"value": result["gb_per_s"], "bar": SHARE_OF_ANCHOR * share * gbs, "unit": "GB/s",
                "why": f"{SHARE_OF_ANCHOR:.0%} of the anchor, {share:.0%} of {gbs} GB/s"}
    if result["kernel"] == "prefill attention" and result["shape"] == PREFILL_PROMPT:
        return {"value": result["tflop_per_s"], "bar": PREFILL_SHARE * tflops, "unit": "TFLOP/s",
                "why": f"{PREFILL_SHARE:.0%} of {tflops} TFLOP/s"}
    if result["kernel"].endswith("int8 weights") and result["shape"] in INT8_ROWS:
        share = SHARE_OF_ANCHOR * INT8_GAIN * INT8_BYTES / 2
        return {"value": result["gb_per_s"], "bar": share * gbs, "unit": "GB/s",
                "why": f"{INT8_GAIN} times as fast as bf16 at {SHARE_OF_ANCHOR:.0%} of {gbs} GB/s"}
    return None
