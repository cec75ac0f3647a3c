"""The fundamental types of PTX: their size, and what the runtime (../ptx/types.h) calls them."""

SIZES = {
    "b8": 1, "u8": 1, "s8": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8,
}


def size_of(name: str) -> int:
    return SIZES[name]


def cpp(name: str) -> str:
    """Untyped bits are unsigned integers."""
    if name == "pred":
        return "bool"
    return "u" + name[1:] if name[0] == "b" and name[1:].isdigit() else name


def register(name: str) -> str:
    """The C++ type of a register: raw bits."""
    return "bool" if name == "pred" else f"u{8 * SIZES[name]}"


def is_float(name: str) -> bool:
    return name.lstrip("b").startswith("f")


def is_signed(name: str) -> bool:
    return name[0] == "s"


def widened(name: str) -> str:
    return name[0] + str(2 * int(name[1:]))
