"""Opcodes, one snippet each, with their meaning in plain C++: what make_opcode_test.py turns into PTX and a test.

A case: the instruction, with a, b, c for inputs and d for the result; the inputs' types; the result's type; the meaning. Types of
the test (../testing/opcode_check.h): integers, float and double as in PTX, pred, m32 for moderate floats, and h, w for the bits of f16 and bf16, hh and ww for
pairs of them. `line` holds several instructions where one alone can't be observed.
"""

U, S, F = ("u16", "u32", "u64"), ("s16", "s32", "s64"), ("f32", "f64")
CASES = []


def case(ptx, inputs, result, meaning):
    CASES.append((ptx, inputs.split(), result, meaning))


for t in U + S:
    n = int(t[1:])
    case(f"add.{t} d, a, b;", f"{t} {t}", t, "Wrap(u64(a) + u64(b))")
    case(f"sub.{t} d, a, b;", f"{t} {t}", t, "Wrap(u64(a) - u64(b))")
    case(f"mul.lo.{t} d, a, b;", f"{t} {t}", t, "Wrap(u64(a) * u64(b))")
    case(f"mul.hi.{t} d, a, b;", f"{t} {t}", t, f"Wrap(u64((Int128(a) * Int128(b)) >> {n}))")
    case(f"mad.lo.{t} d, a, b, c;", f"{t} {t} {t}", t, "Wrap(u64(a) * u64(b) + u64(c))")
    case(f"mad.hi.{t} d, a, b, c;", f"{t} {t} {t}", t, f"Wrap(u64((Int128(a) * Int128(b)) >> {n}) + u64(c))")
    case(f"div.{t} d, a, b;", f"{t} {t}", t, "b == 0 ? Wrap(~0ull) : Wrap(u64(Int128(a) / Int128(b)))")
    case(f"rem.{t} d, a, b;", f"{t} {t}", t, "b == 0 ? a : Wrap(u64(Int128(a) % Int128(b)))")
    case(f"min.{t} d, a, b;", f"{t} {t}", t, "b < a ? b : a")
    case(f"max.{t} d, a, b;", f"{t} {t}", t, "b > a ? b : a")
    case(f"shr.{t} d, a, b;", f"{t} u32", t, f"b >= {n} ? Wrap(a < 0 ? ~0ull : 0) : Wrap(u64(Int128(a) >> b))")
    for name, symbol in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        case(f"setp.{name}.{t} d, a, b;", f"{t} {t}", "pred", f"a {symbol} b")
for t in ("u16", "s16", "u32", "s32"):
    wide = t[0] + str(2 * int(t[1:]))
    case(f"mul.wide.{t} d, a, b;", f"{t} {t}", wide, "Wrap(u64(Int128(a) * Int128(b)))")
    case(f"mad.wide.{t} d, a, b, c;", f"{t} {t} {wide}", wide, "Wrap(u64(Int128(a) * Int128(b)) + u64(c))")
for t in S:
    case(f"neg.{t} d, a;", t, t, "Wrap(0 - u64(a))")
    case(f"abs.{t} d, a;", t, t, "a < 0 ? Wrap(0 - u64(a)) : a")
case("add.sat.s32 d, a, b;", "s32 s32", "s32", "Clamp<s32>(Int128(a) + b)")
case("sub.sat.s32 d, a, b;", "s32 s32", "s32", "Clamp<s32>(Int128(a) - b)")
case("mul24.lo.u32 d, a, b;", "u32 u32", "u32", "Wrap(u64(a & 0xffffff) * (b & 0xffffff))")
case("mul24.lo.s32 d, a, b;", "s32 s32", "s32", "Wrap(u64(s64(a << 8 >> 8) * s64(b << 8 >> 8)))")
case("mul24.hi.u32 d, a, b;", "u32 u32", "u32", "Wrap(u64(a & 0xffffff) * (b & 0xffffff) >> 16)")
case("mad24.lo.s32 d, a, b, c;", "s32 s32 s32", "s32", "Wrap(u64(s64(a << 8 >> 8) * s64(b << 8 >> 8) + c))")
for t in ("u32", "s32", "u16", "s64"):
    case(f"sad.{t} d, a, b, c;", f"{t} {t} {t}", t, "Wrap(u64(c) + u64(a < b ? Int128(b) - a : Int128(a) - b))")
for t in ("b16", "b32", "b64"):
    u = "u" + t[1:]
    case(f"and.{t} d, a, b;", f"{u} {u}", u, "a & b")
    case(f"or.{t} d, a, b;", f"{u} {u}", u, "a | b")
    case(f"xor.{t} d, a, b;", f"{u} {u}", u, "a ^ b")
    case(f"not.{t} d, a;", u, u, "Wrap(~u64(a))")
    case(f"cnot.{t} d, a;", u, u, "a == 0")
    case(f"shl.{t} d, a, b;", f"{u} u32", u, f"b >= {t[1:]} ? 0 : Wrap(u64(a) << b)")
    case(f"mov.{t} d, a;", u, u, "a")
    case(f"selp.{t} d, a, b, c;", f"{u} {u} pred", u, "c ? a : b")
case("and.pred d, a, b;", "pred pred", "pred", "a && b")
case("or.pred d, a, b;", "pred pred", "pred", "a || b")
case("xor.pred d, a, b;", "pred pred", "pred", "a != b")
case("not.pred d, a;", "pred", "pred", "!a")
case("mov.pred d, a;", "pred", "pred", "a")
case("setp.lt.and.s32 d, a, b, c;", "s32 s32 pred", "pred", "a < b && c")
case("setp.lt.or.u32 d, a, b, c;", "u32 u32 pred", "pred", "a < b || c")
case("setp.gt.xor.u64 d, a, b, c;", "u64 u64 pred", "pred", "(a > b) != c")
case("setp.lo.u32 d, a, b;", "u32 u32", "pred", "a < b")
case("setp.hs.u32 d, a, b;", "u32 u32", "pred", "a >= b")
case("{ .reg .pred q; setp.lt.and.s32 q|d, a, b, c; }", "s32 s32 pred", "pred", "!(a < b) && c")
case("set.lt.u32.s32 d, a, b;", "s32 s32", "u32", "a < b ? ~0u : 0u")
case("set.gt.f32.f32 d, a, b;", "f32 f32", "f32", "a > b ? 1.0f : 0.0f")
case("slct.b32.s32 d, a, b, c;", "u32 u32 s32", "u32", "c >= 0 ? a : b")
case("slct.u64.f32 d, a, b, c;", "u64 u64 f32", "u64", "c >= 0 ? a : b")
for t in ("b32", "b64"):
    u, n = "u" + t[1:], t[1:]
    case(f"popc.{t} d, a;", u, "u32", f"CountIf(a, {n}, [](int, bool bit) {{ return bit; }})")
    case(f"clz.{t} d, a;", u, "u32", f"HighestBit(a) < 0 ? {n} : {n} - 1 - HighestBit(a)")
    case(f"brev.{t} d, a;", u, u, f"BuildBits({n}, [&](int i) {{ return Bit(a, {n} - 1 - i); }})")
    case(f"bfi.{t} d, a, b, c, 7;", f"{u} {u} u32", u,
         f"BuildBits({n}, [&](int i) {{ int p = int(c & 255); return i >= p && i < p + 7 ? Bit(a, i - p) : Bit(b, i); }})")
    case(f"bfi.{t} d, a, b, 3, c;", f"{u} {u} u32", u,
         f"BuildBits({n}, [&](int i) {{ return i >= 3 && i < 3 + int(c & 255) ? Bit(a, i - 3) : Bit(b, i); }})")
for t in ("u32", "s32", "u64", "s64"):
    n = t[1:]
    sign = f"(int(c & 255) != 0 && Bit(a, std::min(p + int(c & 255) - 1, {n} - 1)))" if t[0] == "s" else "false"
    case(f"bfe.{t} d, a, b, c;", f"{t} u32 u32", t,
         f"Wrap(BuildBits({n}, [&](int i) {{ int p = int(b & 255); return i < int(c & 255) && p + i < {n} ? Bit(a, p + i) "
         f": {sign}; }}))")
    flip = "a < 0 ? ~u64(a) : u64(a)" if t[0] == "s" else "u64(a)"
    case(f"bfind.{t} d, a;", t, "u32", f"u32(HighestBit({flip}))")
    case(f"bfind.shiftamt.{t} d, a;", t, "u32", f"HighestBit({flip}) < 0 ? ~0u : u32({n} - 1 - HighestBit({flip}))")
case("prmt.b32 d, a, b, c;", "u32 u32 u32", "u32",
     "BuildBits(32, [&](int i) { int n = int(c >> (i / 8 * 4)) & 15, at = (n & 7) * 8 + (n & 8 ? 7 : i % 8); "
     "return Bit(u64(b) << 32 | a, at); })")
for table in (0x00, 0x1b, 0x80, 0xe8, 0xca, 0x96, 0xfe, 0xff):
    case(f"lop3.b32 d, a, b, c, {table};", "u32 u32 u32", "u32",
         f"BuildBits(32, [&](int i) {{ return {table} >> (Bit(a, i) * 4 + Bit(b, i) * 2 + Bit(c, i)) & 1; }})")
for mode, by in (("wrap", "int(c % 32)"), ("clamp", "int(std::min(c, 32u))")):
    case(f"shf.l.{mode}.b32 d, a, b, c;", "u32 u32 u32", "u32",
         f"BuildBits(32, [&](int i) {{ int at = 32 + i - {by}; return Bit(u64(b) << 32 | a, at); }})")
    case(f"shf.r.{mode}.b32 d, a, b, c;", "u32 u32 u32", "u32",
         f"BuildBits(32, [&](int i) {{ int at = i + {by}; return Bit(u64(b) << 32 | a, at); }})")
for x in "us":
    for y in "us":
        case(f"dp4a.{x}32.{y}32 d, a, b, c;", "u32 u32 u32", "u32",
             f"c + u32({x}8(a)*{y}8(b)) + u32({x}8(a>>8)*{y}8(b>>8)) + u32({x}8(a>>16)*{y}8(b>>16)) + u32({x}8(a>>24)*{y}8(b>>24))")
        case(f"dp2a.hi.{x}32.{y}32 d, a, b, c;", "u32 u32 u32", "u32",
             f"c + u32({x}16(a)*{y}8(b>>16)) + u32({x}16(a>>16)*{y}8(b>>24))")
case("{ .reg .u32 t; add.cc.u32 t, a, b; addc.u32 d, c, 0; }", "u32 u32 u32", "u32", "c + u32((u64(a) + b) >> 32)")
case("{ .reg .u32 t; sub.cc.u32 t, a, b; subc.u32 d, c, 0; }", "u32 u32 u32", "u32", "c - u32(a < b)")
case("{ .reg .u64 t; add.cc.u64 t, a, b; addc.cc.u64 t, a, b; addc.u64 d, c, 0; }", "u64 u64 u64", "u64",
     "c + u64((Int128(a) + b + (Int128(a) + b >> 64)) >> 64)")
case("{ .reg .u32 t; mad.lo.cc.u32 t, a, b, c; madc.hi.u32 d, a, b, 0; }", "u32 u32 u32", "u32", "u32((u64(a) * b + c) >> 32)")

for t, suffix, one in (("f32", "f", "float"), ("f64", "", "double")):
    for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*")):
        case(f"{name}.rn.{t} d, a, b;", f"{t} {t}", t, f"a {symbol} b")
        case(f"{name}.{t} d, a, b;", f"{t} {t}", t, f"a {symbol} b")
    case(f"fma.rn.{t} d, a, b, c;", f"{t} {t} {t}", t, "std::fma(a, b, c)")
    case(f"div.rn.{t} d, a, b;", f"{t} {t}", t, "a / b")
    case(f"sqrt.rn.{t} d, a;", t, t, "std::sqrt(a)")
    case(f"rcp.rn.{t} d, a;", t, t, "1 / a")
    case(f"neg.{t} d, a;", t, t, "-a")
    case(f"abs.{t} d, a;", t, t, "std::fabs(a)")
    case(f"min.{t} d, a, b;", f"{t} {t}", t, "Smaller(a, b)")
    case(f"max.{t} d, a, b;", f"{t} {t}", t, "-Smaller(-a, -b)")
    case(f"copysign.{t} d, a, b;", f"{t} {t}", t, "std::copysign(b, a)")
    case(f"mov.{t} d, a;", t, t, "a")
    case(f"selp.{t} d, a, b, c;", f"{t} {t} pred", t, "c ? a : b")
    for what, how in (("finite", "std::isfinite(a)"), ("infinite", "std::isinf(a)"), ("number", "!std::isnan(a)"),
                      ("notanumber", "std::isnan(a)"), ("normal", "std::isnormal(a)"),
                      ("subnormal", "a != 0 && !std::isnan(a) && std::fabs(a) < std::numeric_limits<decltype(a)>::min()")):
        case(f"testp.{what}.{t} d, a;", t, "pred", how)
    for name, symbol in (("eq", "=="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        case(f"setp.{name}.{t} d, a, b;", f"{t} {t}", "pred", f"a {symbol} b")
        case(f"setp.{name}u.{t} d, a, b;", f"{t} {t}", "pred", f"a {symbol} b || std::isnan(a) || std::isnan(b)")
    case(f"setp.ne.{t} d, a, b;", f"{t} {t}", "pred", "a < b || a > b")
    case(f"setp.neu.{t} d, a, b;", f"{t} {t}", "pred", "!(a == b)")
    case(f"setp.num.{t} d, a, b;", f"{t} {t}", "pred", "!std::isnan(a) && !std::isnan(b)")
    case(f"setp.nan.{t} d, a, b;", f"{t} {t}", "pred", "std::isnan(a) || std::isnan(b)")
    for i in ("s32", "u32", "s64", "u64", "s16", "u16", "s8", "u8"):
        for mode, function in (("rni", "std::nearbyint"), ("rzi", "std::trunc"), ("rmi", "std::floor"), ("rpi", "std::ceil")):
            if i in ("s32", "u64") or mode == "rzi":
                case(f"cvt.{mode}.{i}.{t} d, a;", t, i, f"ToInteger<{i}>({function}(a))")
        case(f"cvt.rn.{t}.{i} d, a;", i, t, f"{t}(a)")
    for mode, function in (("rni", "std::nearbyint"), ("rzi", "std::trunc"), ("rmi", "std::floor"), ("rpi", "std::ceil")):
        case(f"cvt.{mode}.{t}.{t} d, a;", t, t, f"{function}(a)")
    case(f"cvt.sat.{t}.{t} d, a;", t, t, "a > 0 ? std::fmin(a, decltype(a)(1)) : decltype(a)(0)")
case("add.sat.f32 d, a, b;", "f32 f32", "f32", "a + b > 0 ? std::fmin(a + b, 1.0f) : 0.0f")
case("fma.rn.sat.f32 d, a, b, c;", "f32 f32 f32", "f32", "std::fma(a, b, c) > 0 ? std::fmin(std::fma(a, b, c), 1.0f) : 0.0f")
case("min.NaN.f32 d, a, b;", "f32 f32", "f32",
     "std::isnan(a) || std::isnan(b) ? NAN : Smaller(a, b)")
case("max.NaN.f32 d, a, b;", "f32 f32", "f32",
     "std::isnan(a) || std::isnan(b) ? NAN : -Smaller(-a, -b)")
case("add.ftz.f32 d, a, b;", "f32 f32", "f32", "Ftz(Ftz(a) + Ftz(b))")
case("mul.ftz.f32 d, a, b;", "f32 f32", "f32", "Ftz(Ftz(a) * Ftz(b))")
case("fma.rn.ftz.f32 d, a, b, c;", "f32 f32 f32", "f32", "Ftz(std::fma(Ftz(a), Ftz(b), Ftz(c)))")
case("setp.eq.ftz.f32 d, a, b;", "f32 f32", "pred", "Ftz(a) == Ftz(b)")
for mode in ("rz", "rm", "rp"):
    for name, symbol in (("add", "+"), ("mul", "*")):
        case(f"{name}.{mode}.f32 d, a, b;", "m32 m32", "m32", f"Directed<f32>({mode[1]!r}, __float128(a) {symbol} b, a {symbol} b)")
    case(f"fma.{mode}.f32 d, a, b, c;", "m32 m32 m32", "m32",
         f"Directed<f32>({mode[1]!r}, __float128(a) * b + c, std::fma(a, b, c))")
    case(f"div.{mode}.f32 d, a, b;", "m32 m32", "m32", f"Directed<f32>({mode[1]!r}, __float128(a) / b, a / b)")
    case(f"cvt.{mode}.f32.f64 d, a;", "f64", "f32", f"Directed<f32>({mode[1]!r}, __float128(a), f32(a))")
    case(f"cvt.{mode}.f32.s32 d, a;", "s32", "f32", f"Directed<f32>({mode[1]!r}, __float128(a), f32(a))")
    case(f"cvt.{mode}.f32.u64 d, a;", "u64", "f32", f"Directed<f32>({mode[1]!r}, __float128(a), f32(a))")
case("cvt.rn.f32.f64 d, a;", "f64", "f32", "f32(a)")
case("cvt.f64.f32 d, a;", "f32", "f64", "a")
for name, how in (("ex2.approx", "std::exp2(a)"), ("lg2.approx", "std::log2(a)"), ("rcp.approx", "1 / a"),
                  ("sqrt.approx", "std::sqrt(a)"), ("rsqrt.approx", "f32(1 / std::sqrt(f64(a)))"), ("sin.approx", "std::sin(a)"),
                  ("cos.approx", "std::cos(a)"), ("tanh.approx", "std::tanh(a)")):
    case(f"{name}.f32 d, a;", "f32", "f32", how)
case("div.approx.f32 d, a, b;", "f32 f32", "f32", "a / b")
case("div.full.f32 d, a, b;", "f32 f32", "f32", "a / b")
case("ex2.approx.ftz.f32 d, a;", "f32", "f32", "Ftz(std::exp2(Ftz(a)))")

for a in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
    for d in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        if a != d:
            case(f"cvt.{d}.{a} d, a;", a, d, "Wrap(u64(a))")
            case(f"cvt.sat.{d}.{a} d, a;", a, d, f"Clamp<{d}>(Int128(a))")

for k, x in (("f16", "h"), ("bf16", "w")):
    y = x + x
    decode, encode = f"{x.upper()}Value", f"{x.upper()}Nearest"
    for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*")):
        case(f"{name}.rn.{k} d, a, b;", f"{x} {x}", x, f"{encode}({decode}(a) {symbol} {decode}(b))")
        case(f"{name}.rn.{k}x2 d, a, b;", f"{y} {y}", y,
             f"Pair([](u16 p, u16 q) {{ return {encode}({decode}(p) {symbol} {decode}(q)); }}, a, b)")
    case(f"fma.rn.{k} d, a, b, c;", f"{x} {x} {x}", x, f"{x.upper()}Fma({decode}(a), {decode}(b), {decode}(c))")
    case(f"fma.rn.relu.{k} d, a, b, c;", f"{x} {x} {x}", x,
         f"Relu({x.upper()}Fma({decode}(a), {decode}(b), {decode}(c)))")
    case(f"neg.{k} d, a;", x, x, "a ^ 0x8000")
    case(f"abs.{k} d, a;", x, x, "a & 0x7fff")
    case(f"neg.{k}x2 d, a;", y, y, "a ^ 0x80008000u")
    case(f"min.{k} d, a, b;", f"{x} {x}", x, f"HalfMin({decode}(a), {decode}(b), a, b)")
    case(f"max.{k} d, a, b;", f"{x} {x}", x, f"HalfMin(-{decode}(a), -{decode}(b), a, b)")
    case(f"setp.lt.{k} d, a, b;", f"{x} {x}", "pred", f"{decode}(a) < {decode}(b)")
    case(f"setp.neu.{k} d, a, b;", f"{x} {x}", "pred", f"!({decode}(a) == {decode}(b))")
    case(f"cvt.rn.{k}.f32 d, a;", "f32", x, f"{encode}(a)")
    case(f"cvt.f32.{k} d, a;", x, "f32", f"f32({decode}(a))")
    case(f"cvt.rn.{k}x2.f32 d, a, b;", "f32 f32", y, f"u32({encode}(a)) << 16 | {encode}(b)")
    case(f"cvt.rn.relu.{k}x2.f32 d, a, b;", "f32 f32", y, f"u32(Relu({encode}(a))) << 16 | Relu({encode}(b))")
    case(f"ex2.approx{'.ftz' if x == 'w' else ''}.{k} d, a;", x, x,
         f"{encode}(std::exp2(f32({decode}(a))))" if x == "h" else "WFtz(WNearest(std::exp2(f32(WValue(a)))))")
case("cvt.rz.f16.f32 d, a;", "f32", "h", "HToward('z', a)")
case("cvt.rn.f16.f64 d, a;", "f64", "h", "HNearest(a)")
case("cvt.rn.f16.s32 d, a;", "s32", "h", "HNearest(a)")
case("cvt.rn.f16.u64 d, a;", "u64", "h", "HNearest(a)")
case("cvt.rzi.s32.f16 d, a;", "h", "s32", "ToInteger<s32>(std::trunc(f64(HValue(a))))")
case("cvt.rni.s8.f16 d, a;", "h", "s8", "ToInteger<s8>(std::nearbyint(f64(HValue(a))))")
case("cvt.rna.tf32.f32 d, a;", "f32", "u32", "Tf32Away(a)")
case("cvt.rn.satfinite.e4m3x2.f32 d, a, b;", "f32 f32", "u16", "u16(E4m3Nearest(a) << 8 | E4m3Nearest(b))")
case("cvt.rn.satfinite.e5m2x2.f32 d, a, b;", "f32 f32", "u16", "u16(E5m2Nearest(a) << 8 | E5m2Nearest(b))")
case("cvt.rn.f16x2.e4m3x2 d, a;", "u16", "hh", "u32(HNearest(E4m3Value(a >> 8))) << 16 | HNearest(E4m3Value(a & 255))")
case("cvt.rn.f16x2.e5m2x2 d, a;", "u16", "hh", "u32(HNearest(E5m2Value(a >> 8))) << 16 | HNearest(E5m2Value(a & 255))")
case("cvt.pack.sat.s8.s32.b32 d, a, b, c;", "s32 s32 u32", "u32",
     "c << 16 | u32(u8(Clamp<s8>(Int128(a)))) << 8 | u8(Clamp<s8>(Int128(b)))")
case("{ .reg .b16 l, h; mov.b32 {l, h}, a; mov.b32 d, {h, l}; }", "u32", "u32", "a << 16 | a >> 16")
case("{ .reg .b32 l, h; mov.b64 {l, h}, a; mov.b64 d, {h, l}; }", "u64", "u64", "a << 32 | a >> 32")
case("{ .reg .b32 h; mov.b64 {_, h}, a; mov.b32 d, h; }", "u64", "u32", "u32(a >> 32)")
