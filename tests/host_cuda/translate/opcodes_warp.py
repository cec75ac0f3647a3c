"""What threads do together: barriers, warp operations, matrices."""
from opcodes_arithmetic import assign

ELEMENTS = {"f16": "kF16", "bf16": "kBf16", "tf32": "kTf32", "e4m3": "kE4m3", "e5m2": "kE5m2", "s8": "kS8", "u8": "kU8",
            "s4": "kS4", "u4": "kU4"}
PER_WORD = {"f16": 2, "bf16": 2, "tf32": 1, "e4m3": 4, "e5m2": 4, "s8": 4, "u8": 4, "s4": 8, "u4": 8, "b1": 32}
SHUFFLES = {"up": "kUp", "down": "kDown", "bfly": "kButterfly", "idx": "kIndex"}
REDUCTIONS = {"and": "kAnd", "or": "kOr", "popc": "kPopc"}


def bar(op):
    op.take("cta")
    if op.take("warp"):
        op.need("sync")
        op.count(1)
        return f"SyncWarp({op.value(0, 'u32')});"
    op.take("aligned")
    how = op.need("sync", "arrive", "red")
    if how == "red":
        return bar_red(op)
    op.count(1, 2)
    count = op.value(1, "u32") if len(op.operands) == 2 else "0"
    name = "kSync" if how == "sync" else "kArrive"
    return f"BlockBarrier(BarrierOp::{name}, {op.value(0, 'u32')}, {count}, false);"


def bar_red(op):
    kind = op.take_types()
    name = REDUCTIONS[op.need(*REDUCTIONS)]
    op.count(3, 4)
    count = op.value(2, "u32") if len(op.operands) == 4 else "0"
    text = f"BlockBarrier(BarrierOp::{name}, {op.value(1, 'u32')}, {count}, {op.value(len(op.operands) - 1, 'pred')})"
    if kind == "pred":
        return assign(op, op.operands[0], f"{text} != 0")
    return op.put(0, f"static_cast<u32>({text})")


def shfl(op):
    op.need("sync")
    op.take_types()
    mode = SHUFFLES[op.need(*SHUFFLES)]
    op.count(5)
    target, predicate = op.pair(0)
    text = f"{{ bool in_range; const u32 got = Shuffle(ShuffleMode::{mode}, " + \
        ", ".join(op.value(i, "b32") for i in range(1, 5)) + ", &in_range); "
    text += op.put(target, "got", "b32")
    if predicate is not None:
        text += " " + assign(op, predicate, "in_range")
    return text + " }"


def vote(op):
    op.need("sync")
    kind = op.take_types()
    if kind == "b32":
        op.need("ballot")
        op.count(3)
        return op.put(0, f"Ballot({op.value(1, 'pred')}, {op.value(2, 'b32')})")
    function = {"all": "VoteAll", "any": "VoteAny", "uni": "VoteUniform"}[op.need("all", "any", "uni")]
    op.count(3)
    return assign(op, op.operands[0], f"{function}({op.value(1, 'pred')}, {op.value(2, 'b32')})")


def match(op):
    op.need("sync")
    kind = op.take_types()
    how = op.need("any", "all")
    op.count(3)
    if how == "any":
        return op.put(0, f"MatchAny({op.value(1, kind)}, {op.value(2, 'b32')})")
    target, predicate = op.pair(0)
    text = f"{{ bool same; const u32 mask = MatchAll({op.value(1, kind)}, {op.value(2, 'b32')}, &same); "
    text += op.put(target, "mask")
    if predicate is not None:
        text += " " + assign(op, predicate, "same")
    return text + " }"


def redux(op):
    op.need("sync")
    kind = op.take_types()
    how = op.need("add", "min", "max", "and", "or", "xor")
    name = "k" + how.capitalize() + ("Signed" if kind == "s32" and how in ("min", "max") else "")
    op.count(3)
    return op.put(0, f"Reduce(Reduction::{name}, {op.value(1, 'b32')}, {op.value(2, 'b32')})")


def activemask(op):
    op.take_types()
    op.count(1)
    return op.put(0, "ActiveMask()")


def matrices(op):
    op.need("sync")
    op.need("aligned")
    op.need("m8n8")
    count = int(op.need("x1", "x2", "x4")[1])
    transpose = "true" if op.take("trans") else "false"
    op.take("shared", "shared::cta")
    op.need("b16")
    op.count(2)
    return count, transpose


def ldmatrix(op):
    count, transpose = matrices(op)
    return op.put_array(0, f"LoadMatrix<{count}>(window, {op.address(1)}, {transpose})", "b32")


def stmatrix(op):
    count, transpose = matrices(op)
    return f"StoreMatrix<{count}>(window, {op.address(0)}, {op.array(1, 'b32', count)}, {transpose});"


def movmatrix(op):
    for modifier in ("sync", "aligned", "m8n8", "trans", "b16"):
        op.need(modifier)
    op.count(2)
    return op.put(0, f"MoveMatrixTransposed({op.value(1, 'b32')})")


def mma(op):
    shape, types = op.modifiers[2], [m for m in op.modifiers if m in ELEMENTS or m in ("f32", "s32", "f64", "b1")]
    rows, k = int(shape[1:shape.index("n")]), int(shape.split("k")[1])
    saturate = "true" if op.take("satfinite") else "false"
    bits = {"xor": "kB1Xor", "and": "kB1And"}.get(op.take("xor", "and"))
    op.modifiers.clear()  # the rest goes without saying, in the forms that there are
    op.count(4)
    d, a, b, _ = types
    if d == "f64":
        values = ", ".join(op.value(op.items(i)[0], "f64") for i in (1, 2))
        return op.put_array(0, f"MatrixMultiplyDoubles({values}, {op.array(3, 'f64', 2)})")
    elements = ", ".join("Element::" + (bits or ELEMENTS[t]) for t in (a, b))
    words, halves = k // PER_WORD[a], rows // 8
    tile = f"kMmaTile<{elements}, {rows}, {words}, {'true' if d == 'f16' else 'false'}, {saturate}>"
    counts = (halves * (1 if d == "f16" else 2), words // 4 * halves, words // 4)
    operands = ", ".join(op.array(i, "b32", n) for i, n in ((1, counts[1]), (2, counts[2]), (3, counts[0])))
    return op.put_array(0, f"MatrixMultiply<{', '.join(map(str, counts))}>({tile}, {operands})", "b32")


TABLE = {
    "bar": bar, "barrier": bar, "shfl": shfl, "vote": vote, "match": match, "redux": redux, "activemask": activemask,
    "ldmatrix": ldmatrix, "stmatrix": stmatrix, "movmatrix": movmatrix, "mma": mma,
}
