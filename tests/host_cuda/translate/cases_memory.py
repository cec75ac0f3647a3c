"""Cases of loads, stores, atomics, addresses and copies, by one thread: what threads do together is in ../ptx/testing/*.ptx.

`sweep` makes instructions of a form (forms.py) in which each of its alternatives is there once at least.
"""
from itertools import product

import forms
from case_list import BITS, F, S, U, case, test_type

POLICY = "L2::cache_hint"
# Spaces: the operand that is an address in it, and what declares it.
ADDRESS = {None: "cell", "global": "cell", "shared": "box", "shared::cta": "box", "local": "own", "const": "fixed"}
OWN = ".local .align 16 .b8 own[16]; "
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


ECHO = ".param .align 16 .b8 given[16]; .param .align 16 .b8 back[16];"
SIZES_OF = set("b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64".split())


def sweep(text):
    """(opcode, {group's first alternative: what is taken}) for a form's text."""
    form = next(f for f in forms.ALL if f.text == text)
    most = max(len(g.alternatives) for g in form.groups)
    for i in range(most):
        taken = [g.alternatives[i % len(g.alternatives)] for g in form.groups]
        if "v4" in taken and taken[-1][-2:] == "64":
            taken[taken.index("v4")] = "v2"  # at most 16 bytes
        yield ".".join([form.base] + [m for m in taken if m]), taken


def size_of(t):
    return SIZES[t[1:]]


def count_of(taken):
    return 4 if "v4" in taken else 2 if "v2" in taken else 1


def space_of(taken):
    return next((s for s in ADDRESS if s is not None and s in taken), None)


def plain(op, space, t):
    return ".".join([op] + ([space] if space else []) + [t])


def wrapped(body):
    return "{ " + (OWN if "own" in body else "") + (".reg .b64 policy; mov.b64 policy, 0; " if "policy" in body else "") + body + " }"


def vector(first, last, n):
    return last if n == 1 else "{" + ", ".join([first] + ["_"] * (n - 2) + [last]) + "}"


# Each type and vector through every space: what nvcc emits most.
for t in (t for g in forms.BY_BASE["ldu"][0].groups for t in g.alternatives if t in SIZES_OF):
    for n in (1, 2, 4):
        if n * size_of(t) > 16:
            continue
        kind = test_type(t)
        values = "x0" if n == 1 else "{" + ", ".join(f"x{i}" for i in range(n)) + "}"
        register = "b16" if size_of(t) == 1 else t
        v = f".v{n}" if n > 1 else ""
        start = " ".join(f"mov.b{max(16, 8 * size_of(t))} x{i}, {'a' if i == n - 1 else 'b'};" for i in range(n))
        through = " ".join(f"st{space}{v}.{t} [{at}], {values}; ld{space}{v}.{t} {values}, [{at}];"
                           for space, at in ((".global", "cell"), (".shared", "box"), (".local", "own"), ("", "cell")))
        through += f" {{ {ECHO} st.param{v}.{t} [given], {values}; call (back), echo, (given); ld.param{v}.{t} {values}, [back]; }}"
        end = "xor.b{0} d, x{1}, x0;".format(max(16, 8 * size_of(t)), n - 1) if n > 1 and t[0] in "bu" else f"mov.b{max(16, 8 * size_of(t))} d, x{n - 1};"
        case(wrapped(f".reg .{register} " + ", ".join(f"x{i}" for i in range(n)) + f"; {start} {through} {end}"),
             f"{kind} {kind}", kind, "a ^ b" if end.startswith("xor") else "a")

# A load reads back what plain stores left: the last element of a vector is a, the first b.
for line in forms.ALL:
    if line.base not in ("ld", "ldu") or "param" in line.text:
        continue
    for opcode, taken in sweep(line.text):
        t, n, space = taken[-1], count_of(taken), space_of(taken)
        kind, at = test_type(t), ADDRESS[space]
        policy = ", policy" if POLICY in taken else ""
        if space == "const":
            whole = sum((0x1000 + 0x101 * (i + 1)) << 16 * i for i in range(8))  # the words of `fixed`
            value = whole >> 8 * size_of(t) * (n - 1) & (1 << 8 * size_of(t)) - 1
            meaning = f"FromBits<T_{kind}::type>({value}ull)"
            case(wrapped(f"{opcode} {vector('_', 'd', n)}, [{at}]{policy};"), kind, kind, meaning)
            continue
        store = plain("st", space, t)
        load = f"{opcode} {vector('x', 'd', n)}, [{at}]{policy};"
        register = "b16" if size_of(t) == 1 else t
        check = ""
        if n > 1 and t[0] in "bu" and size_of(t) > 1:  # the first one, too
            check = f" xor.b{t[1:]} d, d, x;"
        case(wrapped(f".reg .{register} x; {store} [{at}], b; {store} [{at}+{size_of(t) * (n - 1)}], a; {load}{check}"), f"{kind} {kind}", kind,
             "a ^ b" if check else "a")

# A store is read back by plain loads.
for line in forms.ALL:
    if line.base != "st" or "param" in line.text:
        continue
    for opcode, taken in sweep(line.text):
        t, n, space = taken[-1], count_of(taken), space_of(taken)
        kind, at = test_type(t), ADDRESS[space]
        values = "a" if n == 1 else "{b, a}" if n == 2 else "{b, b, b, a}"
        policy = ", policy" if POLICY in taken else ""
        case(wrapped(f"{opcode} [{at}], {values}{policy}; {plain('ld', space, t)} d, [{at}+{size_of(t) * (n - 1)}];"), f"{kind} {kind}", kind, "a")

# Parameters of calls in their longer spelling; those of a kernel.
for t in ("u32", "b64"):
    kind = test_type(t)
    case(f"{{ {ECHO} st.param::func.{t} [given], a; call (back), echo, (given); ld.param::func.{t} d, [back]; }}", kind, kind, "a")
case("{ .reg .b64 x; ld.param::entry.u64 x, [records]; mad.wide.u32 x, i, 32, x; setp.eq.u64 d, x, record; }", "u32", "pred", "true")

# Registers that are wider than what is loaded and stored.
for t in ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32"):
    cpp = test_type(t)
    case(f"st.global.b64 [cell], a; ld.global.{t} d, [cell];", "u64", "u64", f"u64(s64({cpp}(a)))" if t[0] == "s" else f"u64({cpp}(a))")
    case(f"{{ .reg .b64 x; st.global.b64 [cell], b; st.global.{t} [cell], a; ld.global.b64 d, [cell]; }}", "u64 u64", "u64",
         f"(b & ~u64({'u' + t[1:]}(~0ull))) | {'u' + t[1:]}(a)")

# Atomics: the old value and the new one.
RESULT = {
    "and": "a & b", "or": "a | b", "xor": "a ^ b", "exch": "b", "cas": "a == b ? c : a", "min": "b < a ? b : a", "max": "b > a ? b : a",
    "inc": "a >= b ? 0 : a + 1", "dec": "a == 0 || a > b ? b : a - 1",
}
SUM = {"f32": "a + b", "f64": "a + b", "f16": "HNearest(HValue(a) + HValue(b))", "bf16": "WNearest(WValue(a) + WValue(b))",
       "f16x2": "Halves([](u16 a, u16 b, u16) { return u16(HNearest(HValue(a) + HValue(b))); }, a, b, 0)",
       "bf16x2": "Halves([](u16 a, u16 b, u16) { return u16(WNearest(WValue(a) + WValue(b))); }, a, b, 0)"}
TEST = {"f16": "h", "bf16": "w", "f16x2": "hh", "bf16x2": "ww"}
OPERATIONS = set(RESULT) | {"add"}
SPACES = (None, "global", "shared", "shared::cta")
for line in forms.ALL:
    if line.base not in ("atom", "red"):
        continue
    place = next(i for i, g in enumerate(line.groups) if set(g.alternatives) & OPERATIONS)
    types = line.groups[-1].alternatives if line.groups[place] is not line.groups[-1] else [None]
    # Every operation with every type in every space; orders and scopes take turns, and whether the old value or the new one is read.
    for count, (operation, t, space) in enumerate(product(line.groups[place].alternatives, types, SPACES)):
        taken = [g.alternatives[(count + 2 * (count // 4)) % len(g.alternatives)] for g in line.groups]
        taken[place] = operation
        taken[next(i for i, g in enumerate(line.groups) if "shared::cta" in g.alternatives)] = space
        if t is not None:
            taken[-1] = t
        kind, at = taken[-1], ADDRESS[space]
        plainly = {"cell": ".global", "box": ".shared"}[at]
        bits = "b" + {"f16": "16", "bf16": "16", "f16x2": "32", "bf16x2": "32"}.get(kind, kind[1:])
        opcode = ".".join([line.base] + [m for m in taken if m])
        x = TEST.get(kind, test_type(kind))
        operands = f"[{at}], b" + (", c" if operation == "cas" else "")
        changed = SUM.get(kind, "Wrap(u64(a) + u64(b))") if operation == "add" else RESULT[operation]
        is_old = line.base == "atom" and (count + count // 4) % 2 == 0
        text = f"st{plainly}.{bits} [{at}], a; {opcode} {'d, ' if line.base == 'atom' else ''}{operands};"
        case(text + ("" if is_old else f" ld{plainly}.{bits} d, [{at}];"), f"{x} {x}" + (f" {x}" if operation == "cas" else ""), x,
             "a" if is_old else changed)

# Addresses. `box` and `fixed` as generic ones; a parameter's.
GENERIC = {"global": "mov.u64 g, cell;", "shared": "cvt.u64.u32 g, box;", "local": "mov.u64 g, own;", "const": "mov.u64 g, fixed;", "param": "mov.u64 g, records;"}
for asked in ("global", "shared", "shared::cta", "local", "const", "param"):
    for given, address in GENERIC.items():
        case(wrapped(f".reg .u64 g; {address} isspacep.{asked} d, g;"), "u32", "pred", "true" if asked.split("::")[0] == given else "false")
    address = GENERIC[asked.split("::")[0]]
    case(wrapped(f".reg .u64 g; {address} cvta.{asked}.u64 g, g; isspacep.{asked} d, g;"), "u32", "pred", "true")
    case(wrapped(f".reg .u64 g, h; {address} cvta.to.{asked}.u64 h, g; setp.eq.u64 d, g, h;"), "u32", "pred", "true")

# What changes no value.
for opcode in ("membar.cta", "membar.gl", "membar.sys", *(o for o, _ in sweep("fence[.sc,.acq_rel].{cta,gpu,sys}"))):
    case(f"{opcode}; mov.u32 d, a;", "u32", "u32", "a")
for line in forms.ALL:
    if line.base in ("prefetch", "prefetchu", "applypriority"):
        for opcode, taken in sweep(line.text):
            at = "own" if "local" in taken else "cell"
            size = ", 128" if line.base == "applypriority" else ""
            space = "local" if at == "own" else "global"
            case(wrapped(f"st.{space}.u32 [{at}], a; {opcode} [{at}]{size}; ld.{space}.u32 d, [{at}];"), "u32", "u32", "a")
for opcode, taken in sweep("discard[.global].L2"):
    case(f"st.global.u32 [cell+64], a; {opcode} [cell], 128; ld.global.u32 d, [cell+64];", "u32", "u32", "~0u")
for opcode, taken in sweep("createpolicy.fractional.{L2::evict_last,L2::evict_normal,L2::evict_first,L2::evict_unchanged}.b64"):
    case(f"{{ .reg .b64 p; {opcode} p, 0f3F800000; st.global.L2::cache_hint.u32 [cell], a, p; ld.global.u32 d, [cell]; }}", "u32", "u32", "a")

# Copies: what is there when they have been waited for, and not before.
for i, (opcode, taken) in enumerate(sweep("cp.async.{ca,cg}.{shared,shared::cta}.global[$POLICY][$L2]")):
    size = 16 if "cg" in taken else (4, 8, 16)[i % 3]
    policy = ", policy" if POLICY in taken else ""
    start = f"st.global.u32 [cell+{size - 4}], a; {opcode} [box], [cell], {size}{policy}; "
    read = f"ld.shared.u32 d, [box+{size - 4}];"
    case(wrapped(start + "cp.async.wait_all; " + read), "u32", "u32", "a")
    case(wrapped(start + "cp.async.commit_group; cp.async.wait_group 0; " + read), "u32", "u32", "a")
    case(wrapped(start + read), "u32", "u32", "~0u")
    case(wrapped(start.replace(f", {size}{policy};", f", {size}, 0{policy};") + "cp.async.wait_all; " + read), "u32", "u32", "0")
