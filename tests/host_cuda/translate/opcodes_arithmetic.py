"""Arithmetic, logic, comparisons and conversions."""
from operation import PLAIN
from ptx_parser import Integer, Vector
from ptx_types import cpp, is_float, size_of, widened


def plain(kind, mode):
    """Whether C++'s own operators do it."""
    return mode == PLAIN and kind in ("f32", "f64")


def integer_of(*kinds):
    return all(kind[0] in "bus" and kind[1:].isdigit() for kind in kinds)


def unary(function, floats=True):
    def emit(op):
        kind = op.take_types()
        mode = ", " + op.float_mode() if floats and is_float(kind) else ""
        op.count(2)
        return op.put(0, f"{function}<{cpp(kind)}>({op.value(1, kind)}{mode})", kind)
    return emit


def approximate(function):
    def emit(op):
        kind = op.take_types()
        op.take("approx")
        mode = op.float_mode()
        op.count(2)
        return op.put(0, f"Approximate<{cpp(kind)}>({op.value(1, kind)}, {function}, {mode})", kind)
    return emit


def approximate_unary(function):
    def emit(op):
        op.take("approx")
        return unary(function)(op)
    return emit


def add_sub(function):
    carried, symbol = {"Add": ("AddCarry", "+"), "Sub": ("SubBorrow", "-")}[function]

    def emit(op):
        kind = op.take_types()
        op.count(3)
        a, b = op.value(1, kind), op.value(2, kind)
        if op.take("cc"):
            return op.put(0, f"{carried}<{cpp(kind)}>({a}, {b}, false, &carry)")
        if is_float(kind):
            mode = op.float_mode()
            text = f"{a} {symbol} {b}" if plain(kind, mode) else f"{function}<{cpp(kind)}>({a}, {b}, {mode})"
            return op.put(0, text, kind)
        if op.take("sat"):
            return op.put(0, f"{function}Saturated({a}, {b})", kind)
        return op.put(0, f"{a} {symbol} {b}" if integer_of(kind) else f"{function}({a}, {b})", kind)
    return emit


def with_carry(function):
    def emit(op):
        kind = op.take_types()
        op.count(3)
        out = "&carry" if op.take("cc") else "&no_carry"
        return op.put(0, f"{function}<{cpp(kind)}>({op.value(1, kind)}, {op.value(2, kind)}, carry, {out})")
    return emit


def product(op, kind, part):
    """The C++ type and value of a * b."""
    a, b = op.value(1, kind), op.value(2, kind)
    if part == "wide":
        wide = cpp(widened(kind))
        return widened(kind), f"{wide}({a}) * {wide}({b})"
    if part == "hi":
        return kind, f"MulHi({a}, {b})"
    return kind, f"{a} * {b}"


def mul(op):
    kind = op.take_types()
    op.count(3)
    if is_float(kind):
        a, b, mode = op.value(1, kind), op.value(2, kind), op.float_mode()
        return op.put(0, f"{a} * {b}" if plain(kind, mode) else f"Mul<{cpp(kind)}>({a}, {b}, {mode})", kind)
    result, text = product(op, kind, op.need("lo", "hi", "wide"))
    return op.put(0, text, result)


def mad(op):
    kind = op.take_types()
    op.count(4)
    if is_float(kind):
        return fma_of(op, kind)
    result, text = product(op, kind, op.need("lo", "hi", "wide"))
    c = op.value(3, result)
    if op.take("cc"):
        return op.put(0, f"AddCarry<{cpp(result)}>({text}, {c}, false, &carry)")
    if op.take("sat"):
        return op.put(0, f"AddSaturated({text}, {c})")
    return op.put(0, f"{text} + {c}", result)


def madc(op):
    kind = op.take_types()
    op.count(4)
    result, text = product(op, kind, op.need("lo", "hi"))
    out = "&carry" if op.take("cc") else "&no_carry"
    return op.put(0, f"AddCarry<{cpp(result)}>({text}, {op.value(3, result)}, carry, {out})")


def fma_of(op, kind):
    mode = op.float_mode()
    function = {"f32": "__builtin_fmaf", "f64": "__builtin_fma"}[kind] if plain(kind, mode) else f"Fma<{cpp(kind)}>"
    mode = "" if plain(kind, mode) else f", {mode}"
    return op.put(0, f"{function}({op.value(1, kind)}, {op.value(2, kind)}, {op.value(3, kind)}{mode})", kind)


def fma(op):
    kind = op.take_types()
    op.count(4)
    return fma_of(op, kind)


def mul24(op):
    kind = op.take_types()
    function = "Mul24Hi" if op.need("lo", "hi") == "hi" else "Mul24"
    text = f"{function}({op.value(1, kind)}, {op.value(2, kind)})"
    if op.base == "mad24":
        op.count(4)
        add = "AddSaturated" if op.take("sat") else "Add"
        return op.put(0, f"{add}({text}, {op.value(3, kind)})")
    op.count(3)
    return op.put(0, text)


def div(op):
    kind = op.take_types()
    op.count(3)
    if not is_float(kind):
        return op.put(0, f"Div({op.value(1, kind)}, {op.value(2, kind)})")
    op.take("approx", "full")
    return op.put(0, f"Div<{cpp(kind)}>({op.value(1, kind)}, {op.value(2, kind)}, {op.float_mode()})", kind)


def binary(function):
    def emit(op):
        kind = op.take_types()
        op.count(3)
        return op.put(0, f"{function}<{cpp(kind)}>({op.value(1, kind)}, {op.value(2, kind)})")
    return emit


def extreme(function):
    def emit(op):
        kind = op.take_types()
        op.count(3)
        mode = ", " + op.float_mode() if is_float(kind) else ""
        return op.put(0, f"{function}<{cpp(kind)}>({op.value(1, kind)}, {op.value(2, kind)}{mode})", kind)
    return emit


def logic(symbol):
    def emit(op):
        kind = op.take_types()
        op.count(3)
        a, b = op.value(1, kind), op.value(2, kind)
        if kind == "pred":
            symbol_of = "!=" if symbol == "^" else symbol
            return f"{op.names.destination(op.operands[0].name, op.line)} = {a} {symbol_of} {b};"
        return op.put(0, f"{a} {symbol} {b}", kind)
    return emit


def invert(op):
    kind = op.take_types()
    op.count(2)
    if kind == "pred":
        return f"{op.names.destination(op.operands[0].name, op.line)} = !{op.value(1, kind)};"
    return op.put(0, f"~{op.value(1, kind)}", kind)


def cnot(op):
    kind = op.take_types()
    op.count(2)
    return op.put(0, f"static_cast<{cpp(kind)}>({op.value(1, kind)} == 0)")


def shift(function, symbol):
    def emit(op):
        kind = op.take_types()
        op.count(3)
        by = op.operands[2]
        if isinstance(by, Integer) and 0 <= by.value < 8 * size_of(kind):
            return op.put(0, f"{op.value(1, kind)} {symbol} {by.value}", kind)
        return op.put(0, f"{function}<{cpp(kind)}>({op.value(1, kind)}, {op.value(2, 'u32')})", kind)
    return emit


def bits(function, *operands, of_type=True):
    """A function of operands, each of the instruction's type (None) or of its own; .wrap or .clamp is one argument more."""
    def emit(op):
        kind = op.take_types()
        op.count(1 + len(operands))
        arguments = [op.value(i, operand or kind) for i, operand in enumerate(operands, 1)]
        wrap = op.take("wrap", "clamp")
        if wrap:
            arguments.append("true" if wrap == "wrap" else "false")
        return op.put(0, f"{function}{f'<{cpp(kind)}>' if of_type else ''}({', '.join(arguments)})")
    return emit


def funnel(op):
    function = {"l": "FunnelLeft", "r": "FunnelRight"}[op.need("l", "r")]
    return bits(function, "b32", "b32", "u32", of_type=False)(op)


def bfind(op):
    kind = op.take_types()
    amount = "true" if op.take("shiftamt") else "false"
    op.count(2)
    return op.put(0, f"FindBit<{cpp(kind)}>({op.value(1, kind)}, {amount})")


def count_bits(function):
    def emit(op):
        kind = op.take_types()
        op.count(2)
        return op.put(0, f"static_cast<u32>({function}({op.value(1, kind)}))")
    return emit


def dp4a(op):
    a, b = op.take_types(2)
    op.count(4)
    return op.put(0, f"Dot4<{a[0]}8, {b[0]}8>({op.value(1, 'b32')}, {op.value(2, 'b32')}, {op.value(3, 'b32')})")


def dp2a(op):
    a, b = op.take_types(2)
    high = "true" if op.need("lo", "hi") == "hi" else "false"
    op.count(4)
    return op.put(0, f"Dot2<{a[0]}16, {b[0]}8>({op.value(1, 'b32')}, {op.value(2, 'b32')}, {op.value(3, 'b32')}, {high})")


def sad(op):
    kind = op.take_types()
    op.count(4)
    return op.put(0, f"SumOfDifference<{cpp(kind)}>({op.value(1, kind)}, {op.value(2, kind)}, {op.value(3, kind)})")


COMPARISONS = {"eq": "kEq", "ne": "kNe", "lt": "kLt", "le": "kLe", "gt": "kGt", "ge": "kGe", "lo": "kLt", "ls": "kLe",
               "hi": "kGt", "hs": "kGe", "equ": "kEqu", "neu": "kNeu", "ltu": "kLtu", "leu": "kLeu", "gtu": "kGtu",
               "geu": "kGeu", "num": "kNum", "nan": "kNan"}


# Those that C++'s operators are; of floats all but !=, which is true with a NaN.
OPERATORS = {"kEq": "==", "kNe": "!=", "kLt": "<", "kLe": "<=", "kGt": ">", "kGe": ">="}


def compared(op, kind):
    """The truth of a comparison, with what a third operand adds."""
    how = COMPARISONS[op.need(*COMPARISONS)]
    flush = "true" if op.take("ftz") else "false"
    combine = op.take("and", "or", "xor")
    pairs = kind in ("f16x2", "bf16x2")
    if pairs:
        return how, flush, combine
    a, b = op.value(1, kind), op.value(2, kind)
    if flush == "false" and how in OPERATORS and (integer_of(kind) or kind in ("f32", "f64") and how != "kNe"):
        return f"({a} {OPERATORS[how]} {b})", combine
    return f"CompareValues<Compare::{how}, {cpp(kind)}>({a}, {b}, {flush})", combine


def combined(op, truth, combine, third):
    if combine is None:
        return truth
    symbol = {"and": "&&", "or": "||", "xor": "!="}[combine]
    return f"({truth} {symbol} {op.value(third, 'pred')})"


def setp(op):
    kind = op.take_types()
    if kind in ("f16x2", "bf16x2"):
        return setp_pair(op, kind)
    truth, combine = compared(op, kind)
    op.count(4 if combine else 3)
    first, second = op.pair(0)
    if second is None:
        return assign(op, first, combined(op, truth, combine, 3)).strip() or ";"
    text = f"{{ const bool truth = {truth}; "
    text += f"const bool yes = {combined(op, 'truth', combine, 3) if combine else 'truth'}; "
    text += f"const bool no = {combined(op, '!truth', combine, 3) if combine else '!truth'}; (void)no; "
    text += assign(op, first, "yes")
    text += assign(op, second, "no")
    return text + "}"


def assign(op, name, value):
    return "" if name.name == "_" else f"{op.names.destination(name.name, op.line)} = {value}; "


def setp_pair(op, kind):
    how, flush, combine = compared(op, kind)
    op.count(4 if combine else 3)
    first, second = op.pair(0)
    half = kind[:-2]
    text = f"{{ const {kind} a = {op.value(1, kind)}, b = {op.value(2, kind)}; "
    for name, shift_by in ((first, 0), (second, 16)):
        if name is None:
            continue
        truth = f"CompareValues<Compare::{how}>({half}{{static_cast<u16>(a.bits >> {shift_by})}}, " \
                f"{half}{{static_cast<u16>(b.bits >> {shift_by})}}, {flush})"
        text += assign(op, name, combined(op, truth, combine, 3))
    return text + "}"


def set_(op):
    result, kind = op.take_types(2)
    if kind in ("f16x2", "bf16x2"):
        how, flush, combine = compared(op, kind)
        op.count(3)
        half = kind[:-2]
        one = "0xffffu" if not is_float(result) else ("0x3c00u" if half == "f16" else "0x3f80u")
        halves = [f"(CompareValues<Compare::{how}>({half}{{static_cast<u16>({op.value(1, kind)}.bits >> {s})}}, "
                  f"{half}{{static_cast<u16>({op.value(2, kind)}.bits >> {s})}}, {flush}) ? {one} << {s} : 0u)"
                  for s in (0, 16)]
        return op.put(0, " | ".join(halves))
    truth, combine = compared(op, kind)
    op.count(4 if combine else 3)
    truth = combined(op, truth, combine, 3)
    if result in ("f16", "bf16"):
        return op.put(0, f"static_cast<u16>({truth} ? {'0x3c00' if result == 'f16' else '0x3f80'} : 0)")
    true = "1.0f" if result == "f32" else f"static_cast<{cpp(result)}>(-1)"
    return op.put(0, f"{truth} ? {true} : {cpp(result)}{{0}}")


def selp(op):
    kind = op.take_types()
    op.count(4)
    return op.put(0, f"{op.value(3, 'pred')} ? {op.value(1, kind)} : {op.value(2, kind)}", kind)


def slct(op):
    kind, chooser = op.take_types(2)
    flush = op.take("ftz")
    op.count(4)
    c = op.value(3, chooser)
    c = f"Flush({c})" if flush else c
    return op.put(0, f"{c} >= 0 ? {op.value(1, kind)} : {op.value(2, kind)}")


def testp(op):
    kind = op.take_types()
    what = op.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    op.count(2)
    a = op.value(1, kind)
    text = {"finite": f"std::isfinite({a})", "infinite": f"std::isinf({a})", "number": f"!std::isnan({a})",
            "notanumber": f"std::isnan({a})", "normal": f"std::isnormal({a})",
            "subnormal": f"std::fpclassify({a}) == FP_SUBNORMAL"}[what]
    return f"{op.names.destination(op.operands[0].name, op.line)} = {text};"


def mov(op):
    kind = op.take_types()
    op.count(2)
    target, source = op.operands
    if kind == "pred":
        return f"{op.names.destination(target.name, op.line)} = {op.value(1, kind)};"
    if isinstance(source, Vector):
        part = f"b{8 * size_of(kind) // len(source.items)}"
        bits = 8 * size_of(part)
        text = " | ".join(f"static_cast<u64>({op.value(item, part)}) << {i * bits}" for i, item in enumerate(source.items))
        return op.put(0, text, f"b{8 * size_of(kind)}")
    if isinstance(target, Vector):
        part = f"b{8 * size_of(kind) // len(target.items)}"
        bits = 8 * size_of(part)
        text = f"{{ const u64 whole = {op.value(1, 'b' + str(8 * size_of(kind)))}; "
        for i, item in enumerate(target.items):
            text += op.put(item, f"whole >> {i * bits}", part) + " "
        return text + "}"
    return op.put(0, op.value(1, kind), kind)


def cvt(op):
    pack = op.take("pack")
    if pack:
        return cvt_pack(op)
    to, source = cvt_types(op)
    relu = op.take("relu")
    finite = op.take("satfinite")
    if to in ("e4m3x2", "e5m2x2"):
        op.need("rn")
        op.count(3)
        return op.put(0, f"ConvertBytes<{to[0].upper()}{to[1:4]}Format>({op.value(1, 'f32')}, {op.value(2, 'f32')}, "
                         f"{'true' if relu else 'false'})")
    if source in ("e4m3x2", "e5m2x2"):
        op.need("rn")
        op.count(2)
        return op.put(0, f"ConvertFromBytes<{source[0].upper()}{source[1:4]}Format>({op.value(1, 'b16')}, "
                         f"{'true' if relu else 'false'})")
    if to == "tf32":
        op.need("rna")
        op.count(2)
        return op.put(0, f"ConvertTf32({op.value(1, 'f32')})")
    if finite:
        op.fail("unknown modifier .satfinite")
    if relu:
        op.modifiers.append("relu")
    if to in ("f16x2", "bf16x2"):
        mode = op.float_mode()
        op.count(3)
        return op.put(0, f"ConvertPair<{to}>({op.value(1, 'f32')}, {op.value(2, 'f32')}, {mode}).bits", "b32")
    op.count(2)
    integral = op.take("rni", "rzi", "rmi", "rpi")
    if integral:
        op.modifiers.append(integral[:2])
    mode = op.float_mode()
    if mode == PLAIN and integer_of(to, source):
        return op.put(0, f"{cpp(to)}({op.value(1, source)})", to)
    return op.put(0, f"Convert<{cpp(to)}, {cpp(source)}>({op.value(1, source)}, {mode}, {'true' if integral else 'false'})", to)


def cvt_types(op):
    """Also the types that only cvt has."""
    types = op.modifiers[-2:]
    if len(types) < 2:
        op.fail("needs two types")
    del op.modifiers[-2:]
    known = ("e4m3x2", "e5m2x2", "tf32", "f16x2", "bf16x2", "f16", "bf16", "f32", "f64")
    for kind in types:
        if kind not in known and not (kind[0] in "us" and kind[1:] in ("8", "16", "32", "64")):
            op.fail(f"unknown type .{kind}")
    return types


def cvt_pack(op):
    """cvt.pack.sat.s8.s32.b32 d, a, b, c: c shifted up, then a and b."""
    kinds = op.take_types(3) if len(op.modifiers) > 3 else op.take_types(2) + [None]
    op.need("sat")
    to = cpp(kinds[0])
    bits = 8 * size_of(kinds[0])
    unsigned = f"u{bits}"
    a, b = (f"static_cast<u32>(static_cast<{unsigned}>(ClampInteger<{to}>({op.value(i, 's32')})))" for i in (1, 2))
    text = f"{a} << {bits} | {b}"
    if kinds[2]:
        op.count(4)
        return op.put(0, f"{op.value(3, 'b32')} << {2 * bits} | ({text})")
    op.count(3)
    return op.put(0, text)


TABLE = {
    "add": add_sub("Add"), "sub": add_sub("Sub"), "addc": with_carry("AddCarry"), "subc": with_carry("SubBorrow"),
    "mul": mul, "mad": mad, "madc": madc, "fma": fma, "mul24": mul24, "mad24": mul24, "div": div, "rem": binary("Rem"),
    "abs": unary("Abs"), "neg": unary("Neg"), "min": extreme("Min"), "max": extreme("Max"),
    "sqrt": approximate_unary("Sqrt"), "rcp": approximate_unary("Reciprocal"), "rsqrt": approximate_unary("ReciprocalSqrt"),
    "ex2": approximate("Exp2"), "lg2": approximate("Log2"), "sin": approximate("Sine"), "cos": approximate("Cosine"),
    "tanh": approximate("Tanh"), "copysign": binary("CopySign"), "testp": testp,
    "and": logic("&"), "or": logic("|"), "xor": logic("^"), "not": invert, "cnot": cnot,
    "lop3": bits("Logic3", "b32", "b32", "b32", "b32", of_type=False),
    "shl": shift("ShiftLeft", "<<"), "shr": shift("ShiftRight", ">>"), "shf": funnel,
    "bfe": bits("ExtractBits", None, "u32", "u32"), "bfi": bits("InsertBits", None, None, "u32", "u32"), "bfind": bfind,
    "brev": bits("ReverseBits", None), "bmsk": bits("BitMask", "u32", "u32", of_type=False), "szext": bits("ExtendBits", None, "u32"),
    "prmt": bits("PermuteBytes", "b32", "b32", "b32", of_type=False),
    "popc": count_bits("std::popcount"), "clz": count_bits("std::countl_zero"),
    "dp4a": dp4a, "dp2a": dp2a, "sad": sad,
    "setp": setp, "set": set_, "selp": selp, "slct": slct, "mov": mov, "cvt": cvt,
}
