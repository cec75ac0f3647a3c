"""Cases of comparisons, choices and moves."""
from case_list import BITS, F, S, U, Turn, case, test_type

INTEGER = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
FLOAT = {
    "eq": "{0} == {1}", "ne": "({0} < {1} || {0} > {1})", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
    "ge": "{0} >= {1}", "equ": "!({0} < {1} || {0} > {1})", "neu": "!({0} == {1})", "ltu": "!({0} >= {1})", "leu": "!({0} > {1})",
    "gtu": "!({0} <= {1})", "geu": "!({0} < {1})", "num": "({0} == {0} && {1} == {1})", "nan": "({0} != {0} || {1} != {1})",
}
BOOL = {"and": "&&", "or": "||", "xor": "!="}
RESULTS = {"u32": "~0u : 0u", "s32": "-1 : 0", "f32": "1.0f : 0.0f", "u16": "0xffff : 0", "s16": "-1 : 0", "f16": "0x3c00 : 0",
           "bf16": "0x3f80 : 0"}


TURNS = {}


def turn(key, *choices):
    """The next of the choices, for each key on its own."""
    return TURNS.setdefault(key, Turn(*choices)).next()


def setp(line, compared, ftz, t, inputs, truth):
    """With a third operand, and one of two results where there may be two."""
    second = [("q|d", "!c", "!"), ("d|q", "c", "")] if t not in ("f16", "bf16") else [("d", "!c", ""), ("d", "c", "")]
    results, c, negated = turn((line, "setp"), *second)
    how = turn((line, "setp with"), "and", "or", "xor")
    case(f"{{ .reg .pred q; setp.{compared}.{how}{ftz}.{t} {results}, a, b, {c}; }}", f"{inputs} pred", "pred",
         f"{negated}({truth}) {BOOL[how]} {c}")


def set_(line, compared, ftz, t, inputs, truth, *results):
    to = turn((line, "to"), *results)
    result = {"f16": "h", "bf16": "w"}.get(to, to)
    how = turn((line, "set"), None, "and", "or", "xor")
    if how is None:
        case(f"set.{compared}{ftz}.{to}.{t} d, a, b;", inputs, result, f"{truth} ? {RESULTS[to]}")
    else:
        case(f"set.{compared}.{how}{ftz}.{to}.{t} d, a, b, c;", f"{inputs} pred", result, f"({truth}) {BOOL[how]} c ? {RESULTS[to]}")


def setp_pair(compared, ftz, k, x, low, high):
    """p of the low halves, q of the high ones."""
    how = turn((k, "pair", ftz), None, "and", "or", "xor")
    modifier, third, kind = ("", "", "") if how is None else (f".{how}", ", c", " pred")
    meaning = "({})" if how is None else f"(({{}}) {BOOL[how]} c)"
    case(f"{{ .reg .pred p, q; .reg .u32 t; setp.{compared}{modifier}{ftz}.{k}x2 p|q, a, b{third}; selp.u32 t, 2, 0, q; "
         "@p or.b32 t, t, 1; mov.u32 d, t; }", f"{x}{x} {x}{x}{kind}", "u32",
         f"({meaning.format(low)} ? 1u : 0u) | ({meaning.format(high)} ? 2u : 0u)")


def set_pair(compared, ftz, k, x, low, high):
    to = turn((k, "pair to"), f"{k}x2", "u32", "s32")
    ones = {"f16x2": "0x3c00u", "bf16x2": "0x3f80u"}.get(to, "0xffffu")
    result = {"f16x2": "hh", "bf16x2": "ww"}.get(to, to)
    case(f"set.{compared}{ftz}.{to}.{k}x2 d, a, b;", f"{x}{x} {x}{x}", result,
         f"(({low}) ? {ones} : 0u) | (({high}) ? {ones} << 16 : 0u)")


WORDS = ("u32", "s32", "f32")
for types, names in ((BITS, ("eq", "ne")), (S, ("eq", "ne", "lt", "le", "gt", "ge")), (U, INTEGER)):
    for t in types:
        for name in names:
            both = f"{test_type(t)} {test_type(t)}"
            case(f"setp.{name}.{t} d, a, b;", both, "pred", f"a {INTEGER[name]} b")
            setp(types, name, "", t, both, f"a {INTEGER[name]} b")
            set_(types, name, "", t, both, f"a {INTEGER[name]} b", *WORDS)
for i, (name, form) in enumerate(FLOAT.items()):
    for t, ftz, flush in (("f32", "", ""), ("f32", ".ftz", "Ftz"), ("f64", "", "")):
        truth = form.format(f"{flush}(a)", f"{flush}(b)")
        case(f"setp.{name}{ftz}.{t} d, a, b;", f"{t} {t}", "pred", truth)
        if i % 2 == 0:
            setp(t + ftz, name, ftz, t, f"{t} {t}", truth)
        set_(t + ftz, name, ftz, t, f"{t} {t}", truth, *WORDS)
    for k, x, ftz in (("f16", "h", ""), ("f16", "h", ".ftz"), ("bf16", "w", "")):
        of = f"{x.upper()}Value({'HFtz' if ftz else ''}(u16({{}})))"
        truth = form.format(of.format("a"), of.format("b"))
        case(f"setp.{name}{ftz}.{k} d, a, b;", f"{x} {x}", "pred", truth)
        if i % 2 == 1:
            setp(k + ftz, name, ftz, k, f"{x} {x}", truth)
        set_(k + ftz, name, ftz, k, f"{x} {x}", truth, k, "u16", "s16", "u32", "s32")
        halves = [form.format(of.format(f"a >> {at}"), of.format(f"b >> {at}")) for at in (0, 16)]
        setp_pair(name, ftz, k, x, *halves)
        set_pair(name, ftz, k, x, *halves)

for t in BITS + U + S + F:
    kind = test_type(t)
    case(f"mov.{t} d, a;", kind, kind, "a")
    case(f"selp.{t} d, a, b, c;", f"{kind} {kind} pred", kind, "c ? a : b")
    case(f"slct.{t}.s32 d, a, b, c;", f"{kind} {kind} s32", kind, "c >= 0 ? a : b")
    case(f"slct.{t}.f32 d, a, b, c;", f"{kind} {kind} f32", kind, "c >= 0 ? a : b")
    case(f"slct.ftz.{t}.f32 d, a, b, c;", f"{kind} {kind} f32", kind, "Ftz(c) >= 0 ? a : b")
case("mov.pred d, a;", "pred", "pred", "a")
case("{ .reg .b16 l, h; mov.b32 {l, h}, a; mov.b32 d, {h, l}; }", "u32", "u32", "a << 16 | a >> 16")
case("{ .reg .b32 l, h; mov.b64 {l, h}, a; mov.b64 d, {h, l}; }", "u64", "u64", "a << 32 | a >> 32")
case("{ .reg .b32 h; mov.b64 {_, h}, a; mov.b32 d, h; }", "u64", "u32", "u32(a >> 32)")
