"""Cases of integer and bit instructions."""
from case_list import BITS, S, U, case

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
case("and.pred d, a, b;", "pred pred", "pred", "a && b")
case("or.pred d, a, b;", "pred pred", "pred", "a || b")
case("xor.pred d, a, b;", "pred pred", "pred", "a != b")
case("not.pred d, a;", "pred", "pred", "!a")
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
for mode, of in (("wrap", "int({} % 32)"), ("clamp", "int(std::min({}, 32u))")):
    p, w = of.format("a"), of.format("b")
    case(f"bmsk.{mode}.b32 d, a, b;", "u32 u32", "u32", f"BuildBits(32, [&](int i) {{ return i >= {p} && i < {p} + {w}; }})")
    case(f"szext.{mode}.u32 d, a, b;", "u32 u32", "u32", f"BuildBits(32, [&](int i) {{ return i < {w} && Bit(a, i); }})")
    case(f"szext.{mode}.s32 d, a, b;", "s32 u32", "s32",
         f"Wrap(BuildBits(32, [&](int i) {{ return {w} > 0 && Bit(u32(a), std::min(i, {w} - 1)); }}))")
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

for t in ("u64", "s16"):
    case(f"sad.{t} d, a, b, c;", f"{t} {t} {t}", t, "Wrap(u64(c) + u64(a < b ? Int128(b) - a : Int128(a) - b))")
for t in BITS:
    u, n = "u" + t[1:], t[1:]
    case(f"shr.{t} d, a, b;", f"{u} u32", u, f"b >= {n} ? 0 : Wrap(u64(a) >> b)")
for x in "us":
    for y in "us":
        case(f"dp2a.lo.{x}32.{y}32 d, a, b, c;", "u32 u32 u32", "u32", f"c + u32({x}16(a)*{y}8(b)) + u32({x}16(a>>16)*{y}8(b>>8))")
case("mul24.hi.s32 d, a, b;", "s32 s32", "s32", "Wrap(u64(s64(a << 8 >> 8) * s64(b << 8 >> 8) >> 16))")
case("mad24.lo.u32 d, a, b, c;", "u32 u32 u32", "u32", "Wrap(u64(a & 0xffffff) * (b & 0xffffff) + c)")
case("mad24.hi.u32 d, a, b, c;", "u32 u32 u32", "u32", "Wrap((u64(a & 0xffffff) * (b & 0xffffff) >> 16) + c)")
case("mad24.hi.s32 d, a, b, c;", "s32 s32 s32", "s32", "Wrap(u64((s64(a << 8 >> 8) * s64(b << 8 >> 8) >> 16) + c))")
case("mad24.hi.sat.s32 d, a, b, c;", "s32 s32 s32", "s32", "Clamp<s32>(Int128(s32(s64(a << 8 >> 8) * s64(b << 8 >> 8) >> 16)) + c)")
case("mad.hi.sat.s32 d, a, b, c;", "s32 s32 s32", "s32", "Clamp<s32>(Int128(s32(Int128(a) * b >> 32)) + c)")

# The carry: out of the first instruction, into the second, out of it into the third.
for t in ("u32", "s32", "u64", "s64"):
    n, u = t[1:], f"u{t[1:]}"
    start = f"{{ .reg .{t} t; "
    once = f"Int128({u}(a)) + {u}(b)"
    case(start + f"add.cc.{t} t, a, b; addc.{t} d, c, a; }}", f"{t} {t} {t}", t, f"Wrap(u64(c) + u64(a) + u64(({once}) >> {n}))")
    case(start + f"add.cc.{t} t, a, b; addc.cc.{t} t, b, c; addc.{t} d, 0, 0; }}", f"{t} {t} {t}", t,
         f"Wrap(u64((Int128({u}(b)) + {u}(c) + (({once}) >> {n})) >> {n}))")
    case(start + f"sub.cc.{t} t, a, b; subc.{t} d, c, a; }}", f"{t} {t} {t}", t, f"Wrap(u64(c) - u64(a) - ({u}(a) < {u}(b) ? 1 : 0))")
    case(start + f"sub.cc.{t} t, a, b; subc.cc.{t} t, b, c; subc.{t} d, 0, 0; }}", f"{t} {t} {t}", t,
         f"Wrap(Int128({u}(b)) - {u}(c) - ({u}(a) < {u}(b) ? 1 : 0) < 0 ? ~0ull : 0)")
    wide = "UInt128" if t[0] == "u" else "Int128"
    for part, of in (("lo", f"{u}(u64(a) * u64(b))"), ("hi", f"{u}(({wide}(a) * {wide}(b)) >> {n})")):
        case(start + f"mad.{part}.cc.{t} t, a, b, c; addc.{t} d, 0, 0; }}", f"{t} {t} {t}", t, f"(Int128({of}) + {u}(c)) >> {n} != 0")
        case(start + f"mad.{part}.cc.{t} d, a, b, c; }}", f"{t} {t} {t}", t, f"Wrap(u64({of}) + u64(c))")
        case(start + f"add.cc.{t} t, a, b; madc.{part}.{t} d, a, b, c; }}", f"{t} {t} {t}", t,
             f"Wrap(u64({of}) + u64(c) + u64(({once}) >> {n}))")
        case(start + f"add.cc.{t} t, a, b; madc.{part}.cc.{t} t, a, b, c; addc.{t} d, 0, 0; }}", f"{t} {t} {t}", t,
             f"(Int128({of}) + {u}(c) + (({once}) >> {n})) >> {n} != 0")
