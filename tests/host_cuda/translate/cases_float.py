"""Cases of floating-point arithmetic, in every type and with every modifier."""
from itertools import product

from case_list import F, case, toward

ROUNDINGS = ("", ".rn", ".rz", ".rm", ".rp")


def moded(name, t, operands, above, nearest, rounding, ftz, sat):
    """`above` takes the nearest value and the operands."""
    values = [f"Ftz({x})" if ftz else x for x in operands]
    value = nearest.format(*values)
    text = toward(rounding, t, f"{above}({value}, {', '.join(values)})", value)
    text = f"Ftz({text})" if ftz else text
    text = f"Sat({text})" if sat else text
    zeros = ("z" if rounding not in ("", ".rn") else "f") + t[1:]
    modifiers = rounding + (".ftz" if ftz else "") + (".sat" if sat else "")
    case(f"{name}{modifiers}.{t} d, {', '.join(operands)};", " ".join([zeros] * len(operands)), zeros, text)


FLUSH_AND_SATURATE = ((0, 0), (1, 0), (0, 1), (1, 1))
for i, (rounding, (ftz, sat)) in enumerate(product(ROUNDINGS, FLUSH_AND_SATURATE)):
    if (ftz or sat) and i % 3 == 0:
        continue
    for t in F:
        if t == "f64" and (ftz or sat):
            continue
        moded("add", t, "ab", "AboveSum", "({} + {})", rounding, ftz, sat)
        moded("sub", t, "ab", "AboveDifference", "({} - {})", rounding, ftz, sat)
        moded("mul", t, "ab", "AboveProduct", "({} * {})", rounding, ftz, sat)
        if rounding:
            moded("fma", t, "abc", "AboveFma", "std::fma({}, {}, {})", rounding, ftz, sat)
            moded("mad", t, "abc", "AboveFma", "std::fma({}, {}, {})", rounding, ftz, sat)
        if rounding and not sat:
            moded("div", t, "ab", "AboveQuotient", "({} / {})", rounding, ftz, 0)
            moded("sqrt", t, "a", "AboveRoot", "std::sqrt({})", rounding, ftz, 0)
            moded("rcp", t, "a", "AboveReciprocal", "(1 / {})", rounding, ftz, 0)

for name, how in (("ex2", "std::exp2({})"), ("lg2", "std::log2({})"), ("rcp", "1 / {}"), ("sqrt", "std::sqrt({})"),
                  ("rsqrt", "f32(1 / std::sqrt(f64({})))"), ("sin", "std::sin({})"), ("cos", "std::cos({})")):
    case(f"{name}.approx.f32 d, a;", "f32", "f32", how.format("a"))
    case(f"{name}.approx.ftz.f32 d, a;", "f32", "f32", f"Ftz({how.format('Ftz(a)')})")
case("tanh.approx.f32 d, a;", "f32", "f32", "std::tanh(a)")
case("rsqrt.approx.f64 d, a;", "f64", "f64", "1 / std::sqrt(a)")
case("rsqrt.approx.ftz.f64 d, a;", "f64", "f64", "Ftz(1 / std::sqrt(Ftz(a)))")
case("rcp.approx.ftz.f64 d, a;", "f64", "f64", "Ftz(1 / Ftz(a))")
for name in ("approx", "full"):
    case(f"div.{name}.f32 d, a, b;", "f32 f32", "f32", "a / b")
    case(f"div.{name}.ftz.f32 d, a, b;", "f32 f32", "f32", "Ftz(Ftz(a) / Ftz(b))")

for t in F:
    case(f"neg.{t} d, a;", t, t, "-a")
    case(f"abs.{t} d, a;", t, t, "std::fabs(a)")
    case(f"min.{t} d, a, b;", f"{t} {t}", t, "Smaller(a, b)")
    case(f"max.{t} d, a, b;", f"{t} {t}", t, "-Smaller(-a, -b)")
    case(f"copysign.{t} d, a, b;", f"{t} {t}", t, "std::copysign(b, a)")
    for what, how in (("finite", "std::isfinite(a)"), ("infinite", "std::isinf(a)"), ("number", "!std::isnan(a)"),
                      ("notanumber", "std::isnan(a)"), ("normal", "std::isnormal(a)"),
                      ("subnormal", "a != 0 && !std::isnan(a) && std::fabs(a) < std::numeric_limits<decltype(a)>::min()")):
        case(f"testp.{what}.{t} d, a;", t, "pred", how)
case("neg.ftz.f32 d, a;", "f32", "f32", "-Ftz(a)")
case("abs.ftz.f32 d, a;", "f32", "f32", "std::fabs(Ftz(a))")
for name, how in (("min", "Smaller({}, {})"), ("max", "-Smaller(-{}, -{})")):
    nan = "std::isnan(a) || std::isnan(b) ? NAN : "
    case(f"{name}.ftz.f32 d, a, b;", "f32 f32", "f32", how.format("Ftz(a)", "Ftz(b)"))
    case(f"{name}.NaN.f32 d, a, b;", "f32 f32", "f32", nan + how.format("a", "b"))
    case(f"{name}.ftz.NaN.f32 d, a, b;", "f32 f32", "f32", nan + how.format("Ftz(a)", "Ftz(b)"))


def half(opcode, x, operands, meaning):
    """On halves and on pairs of them: `{m}` is where further modifiers would go, the types follow; the meaning is of one half's bits."""
    k = {"h": "f16", "w": "bf16"}[x]
    case(f"{opcode}.{k} d, {', '.join(operands)};", " ".join([x] * len(operands)), x, meaning)
    inner = meaning
    case(f"{opcode}.{k}x2 d, {', '.join(operands)};", " ".join([x + x] * len(operands)), x + x,
         f"Halves([](u16 a, u16 b, u16 c) {{ return u16({inner}); }}, {', '.join(list(operands) + ['0u'] * (3 - len(operands)))})")


for x in "hw":
    value, nearest, fma = (f"{x.upper()}{what}" for what in ("Value", "Nearest", "Fma"))
    a, b, c = (f"{value}({i})" for i in "abc")
    for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*")):
        for rounding in ("", ".rn"):
            half(f"{name}{rounding}", x, "ab", f"{nearest}({a} {symbol} {b})")
    half("fma.rn", x, "abc", f"{fma}({a}, {b}, {c})")
    half("fma.rn.relu", x, "abc", f"Relu({fma}({a}, {b}, {c}))")
    half("neg", x, "a", "a ^ 0x8000")
    half("abs", x, "a", "a & 0x7fff")
    half("min", x, "ab", f"HalfMin({a}, {b}, a, b)")
    half("max", x, "ab", f"HalfMin(-{a}, -{b}, a, b)")
    half("min.NaN", x, "ab", f"std::isnan({a}) || std::isnan({b}) ? 0x7fff : HalfMin({a}, {b}, a, b)")
    half("max.NaN", x, "ab", f"std::isnan({a}) || std::isnan({b}) ? 0x7fff : HalfMin(-{a}, -{b}, a, b)")
    half("tanh.approx", x, "a", f"{nearest}(std::tanh(f32({a})))")
half("ex2.approx", "h", "a", "HNearest(std::exp2(f32(HValue(a))))")
half("ex2.approx.ftz", "w", "a", "WFtz(WNearest(std::exp2(f32(WValue(WFtz(a))))))")

# .ftz and .sat: of f16 alone.
A, B, C = ("HValue(HFtz(a))", "HValue(HFtz(b))", "HValue(HFtz(c))")
for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*")):
    half(f"{name}.ftz", "h", "ab", f"HFtz(HNearest({A} {symbol} {B}))")
    half(f"{name}.sat", "h", "ab", f"HSat(HNearest(HValue(a) {symbol} HValue(b)))")
    half(f"{name}.rn.ftz.sat", "h", "ab", f"HSat(HFtz(HNearest({A} {symbol} {B})))")
half("fma.rn.ftz", "h", "abc", f"HFtz(HFma({A}, {B}, {C}))")
half("fma.rn.sat", "h", "abc", "HSat(HFma(HValue(a), HValue(b), HValue(c)))")
half("fma.rn.ftz.relu", "h", "abc", f"Relu(HFtz(HFma({A}, {B}, {C})))")
half("neg.ftz", "h", "a", "HFtz(a) ^ 0x8000")
half("abs.ftz", "h", "a", "HFtz(a) & 0x7fff")
half("min.ftz", "h", "ab", f"HalfMin({A}, {B}, HFtz(a), HFtz(b))")
half("max.ftz", "h", "ab", f"HalfMin(-{A}, -{B}, HFtz(a), HFtz(b))")
