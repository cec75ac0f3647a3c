"""What the files of cases (cases_*.py) add theirs to.

A case: the instruction, with a, b, c for inputs and d for the result; the inputs' types; the result's type; the meaning in plain
C++, which shares no code with ../ptx. Where one instruction alone can't be observed there are several.

Types of the test (../testing/opcode_types.h): integers, float and double as in PTX; pred; z32 and z64, float and double whose zeros
are alike; h, w for the bits of f16 and bf16, hh and ww for pairs of them; b16 and b32 for other bits.

What a case may use beside: `cell`, 128 bytes of global memory and their address; `box`, 16 bytes of shared memory; `fixed`, a
constant of eight 16-bit words 0x1101, 0x1202, ... 0x1808; `echo`, a function that returns its 16 bytes.
"""

U, S, F = ("u16", "u32", "u64"), ("s16", "s32", "s64"), ("f32", "f64")
BITS = ("b16", "b32", "b64")
CASES = []


def case(ptx, inputs, result, meaning):
    CASES.append((ptx, inputs.split(), result, meaning))


def test_type(kind):
    """The test's type for one of PTX: bits are unsigned."""
    return "u" + kind[1:] if kind[0] == "b" and kind[1:].isdigit() else kind


def toward(rounding, t, above, nearest):
    """The nearest value, corrected to the side that the rounding names: `above` says where it lies from the exact one."""
    cpp = "f32" if t == "f32" else "f64"
    if rounding in ("", ".rn"):
        return nearest
    return f"Toward<{cpp}>({rounding[2]!r}, {nearest}, {above})"


class Turn:
    """Takes its choices one after the other, over and over: so that each is in some case."""

    def __init__(self, *choices):
        self.choices, self.at = choices, -1

    def next(self):
        self.at = (self.at + 1) % len(self.choices)
        return self.choices[self.at]
