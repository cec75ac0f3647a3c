"""Cases of cvt."""
from case_list import F, case, toward

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def fits(a, d):
    """Whether each value of a is one of d: .sat has nothing to do then."""
    more = int(d[1:]) - int(a[1:])
    return more >= 0 if a[0] == d[0] else a[0] == "u" and more > 0


TO_INTEGER = {"rni": "std::nearbyint", "rzi": "std::trunc", "rmi": "std::floor", "rpi": "std::ceil"}
HALF = {"f16": "h", "bf16": "w"}
ROUNDINGS = ("rn", "rz", "rm", "rp")


def value_of(t, a="a"):
    return f"f64({HALF[t].upper()}Value({a}))" if t in HALF else a


def rounded(t, rounding, exact):
    """To a half's bits."""
    return f"{HALF[t].upper()}Rounded('{rounding[1]}', {exact})"


for a in INTEGERS:
    for d in INTEGERS:
        case(f"cvt.{d}.{a} d, a;", a, d, "Wrap(u64(a))")
        if not fits(a, d):
            case(f"cvt.sat.{d}.{a} d, a;", a, d, f"Clamp<{d}>(Int128(a))")

for i in INTEGERS:
    for k, t in enumerate(F + tuple(HALF)):
        x = HALF.get(t, t)
        if t == "bf16" and i in ("u8", "s8"):
            continue
        for mode, function in TO_INTEGER.items():
            if i in ("s32", "u64") or mode == "rzi":
                case(f"cvt.{mode}.{i}.{t} d, a;", x, i, f"ToInteger<{i}>({function}({value_of(t)}))")
        mode, function = list(TO_INTEGER.items())[k]
        if t != "bf16":
            case(f"cvt.{mode}.sat.{i}.{t} d, a;", x, i, f"ToInteger<{i}>({function}({value_of(t)}))")
        for rounding in ROUNDINGS:
            if t in HALF:
                case(f"cvt.{rounding}.{t}.{i} d, a;", i, x, rounded(t, rounding, "__float128(a)"))
            else:
                case(f"cvt.{rounding}.{t}.{i} d, a;", i, t, toward("." + rounding, t, f"AboveValue({t}(a), __float128(a))", f"{t}(a)"))
        one, zero = ("0x3c00", "0") if t == "f16" else (f"{t}(1)", f"{t}(0)")
        if t != "bf16":
            case(f"cvt.{ROUNDINGS[k]}.sat.{t}.{i} d, a;", i, x, f"a > 0 ? {one} : {zero}")
    case(f"cvt.rmi.ftz.{i}.f32 d, a;", "f32", i, f"ToInteger<{i}>(std::floor(Ftz(a)))")
    case(f"cvt.rpi.ftz.sat.{i}.f32 d, a;", "f32", i, f"ToInteger<{i}>(std::ceil(Ftz(a)))")

for t in F:
    for mode, function in TO_INTEGER.items():
        case(f"cvt.{mode}.{t}.{t} d, a;", t, t, f"{function}(a)")
        case(f"cvt.{mode}.sat.{t}.{t} d, a;", t, t, f"Sat({function}(a))")
    case(f"cvt.sat.{t}.{t} d, a;", t, t, "Sat(a)")
    case(f"cvt.{t}.{t} d, a;", t, t, "a")
case("cvt.ftz.f32.f32 d, a;", "f32", "f32", "Ftz(a)")
case("cvt.rpi.ftz.f32.f32 d, a;", "f32", "f32", "std::ceil(Ftz(a))")
for rounding in ROUNDINGS:
    nearest = toward("." + rounding, "f32", "AboveValue(f32(a), __float128(a))", "f32(a)")
    case(f"cvt.{rounding}.f32.f64 d, a;", "f64", "f32", nearest)
    case(f"cvt.{rounding}.ftz.f32.f64 d, a;", "f64", "f32", f"Ftz({nearest})")
    case(f"cvt.{rounding}.sat.f32.f64 d, a;", "f64", "f32", f"Sat({nearest})")
case("cvt.f64.f32 d, a;", "f32", "f64", "a")
case("cvt.ftz.f64.f32 d, a;", "f32", "f64", "Ftz(a)")
case("cvt.sat.f64.f32 d, a;", "f32", "f64", "Sat(f64(a))")

for k, x in HALF.items():
    value = f"{x.upper()}Value"
    for rounding in ROUNDINGS if k == "f16" else ("rn", "rz"):
        case(f"cvt.{rounding}.{k}.f32 d, a;", "f32", x, rounded(k, rounding, "a"))
    for rounding in ("rn", "rz"):
        case(f"cvt.{rounding}.relu.{k}.f32 d, a;", "f32", x, f"Relu({rounded(k, rounding, 'a')})")
        for relu, of in (("", "{}"), (".relu", "Relu({})")):
            high, low = (of.format(rounded(k, rounding, i)) for i in "ab")
            case(f"cvt.{rounding}{relu}.{k}x2.f32 d, a, b;", "f32 f32", x + x, f"u32({high}) << 16 | {low}")
    for rounding in ROUNDINGS:
        case(f"cvt.{rounding}.{k}.f64 d, a;", "f64", x, rounded(k, rounding, "a"))
    for t in F:
        case(f"cvt.{t}.{k} d, a;", x, t, f"{t}({value}(a))")
    case(f"cvt.{k}.{k} d, a;", x, x, "a")
    for mode, function in TO_INTEGER.items():
        case(f"cvt.{mode}.{k}.{k} d, a;", x, x, rounded(k, "rn", f"std::copysign({function}(f64({value}(a))), f64({value}(a)))"))
for t in F:
    case(f"cvt.sat.{t}.f16 d, a;", "h", t, f"Sat({t}(HValue(a)))")
case("cvt.rn.sat.f16.f64 d, a;", "f64", "h", "HSat(HNearest(a))")
case("cvt.sat.f16.f16 d, a;", "h", "h", "HSat(a)")
case("cvt.ftz.f32.f16 d, a;", "h", "f32", "f32(HValue(a))")
case("cvt.rn.ftz.f16.f32 d, a;", "f32", "h", "HNearest(Ftz(a))")
case("cvt.rz.sat.f16.f32 d, a;", "f32", "h", "HSat(HRounded('z', a))")

case("cvt.rna.tf32.f32 d, a;", "f32", "b32", "Tf32Away(a)")
for f in ("E4m3", "E5m2"):
    name = f.lower() + "x2"
    for relu, of in (("", "a"), (".relu", "(a <= 0 ? 0.0f : a)")):
        high, low = (f"{f}Nearest({of.replace('a', i)})" for i in "ab")
        case(f"cvt.rn.satfinite{relu}.{name}.f32 d, a, b;", "f32 f32", "b16", f"u16({high} << 8 | {low})")
    for relu, of in (("", "{}"), (".relu", "Relu({})")):
        high, low = (of.format(f"HNearest({f}Value({byte}))") for byte in ("a >> 8", "a & 255"))
        case(f"cvt.rn{relu}.f16x2.{name} d, a;", "b16", "hh", f"u32({high}) << 16 | {low}")
for t in ("s8", "u8"):
    case(f"cvt.pack.sat.{t}.s32.b32 d, a, b, c;", "s32 s32 u32", "u32",
         f"c << 16 | u32(u8(Clamp<{t}>(Int128(a)))) << 8 | u8(Clamp<{t}>(Int128(b)))")
for t in ("s16", "u16"):
    case(f"cvt.pack.sat.{t}.s32 d, a, b;", "s32 s32", "u32", f"u32(u16(Clamp<{t}>(Int128(a)))) << 16 | u16(Clamp<{t}>(Int128(b)))")
