#!/usr/bin/env python3
"""Every mma.sync that the translator accepts as a kernel, and a table of them for ../ptx/mma_test.cc: make_mma_test.py OUT.ptx OUT.h

A lane's operands lie in 48 bytes: four words of A, two of B, four of C from byte 32 on; its result is 16 bytes.
"""
import itertools
import pathlib
import sys

import forms

ELEMENT_BITS = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def opcodes():
    for form in forms.BY_BASE["mma"]:
        for taken in itertools.product(*(group.alternatives for group in form.groups)):
            yield ".".join([form.base] + [m for m in taken if m])


def parts(opcode):
    """Rows, k and the types of D, A and B; saturating; and or xor."""
    words = opcode.split(".")
    rows, k = words[3][1:].split("n8k")
    saturate, how = "satfinite" in words, next((w for w in words if w in ("and", "xor")), "")
    types = [w for w in words[6:] if w not in ("satfinite", "and", "xor", "popc")]
    return int(rows), int(k), types[0], types[1], types[2], saturate, how


def name(opcode):
    return opcode.replace(".", "_")


def words_of(rows, k, kind):
    return rows * k * ELEMENT_BITS[kind] // 32 // 32


def kernel(opcode):
    rows, k, d, a, b, _, _ = parts(opcode)
    register = "f64" if d == "f64" else "b32"
    size = 2 if d == "f64" else 1
    counts = {"a": words_of(rows, k, a) // size, "b": words_of(8, k, b) // size,
              "c": rows * 8 // 32 // (2 if d == "f16" else 1)}
    text = [f".visible .entry {name(opcode)}(.param .u64 in, .param .u64 out)", "{", ".reg .b64 from, to; .reg .u32 i;"]
    for operand, start in (("a", 0), ("b", 16), ("c", 32)):
        text += [f".reg .{register} {operand}{i};" for i in range(counts[operand])]
    text += [f".reg .{register} d{i};" for i in range(counts["c"])]
    text += ["ld.param.u64 from, [in]; ld.param.u64 to, [out];", "mov.u32 i, %tid.x; mad.wide.u32 from, i, 48, from; mad.wide.u32 to, i, 16, to;"]
    for operand, start in (("a", 0), ("b", 16), ("c", 32)):
        text += [f"ld.global.{register} {operand}{i}, [from+{start + 4 * size * i}];" for i in range(counts[operand])]
    lists = ["{" + ", ".join(f"{operand}{i}" for i in range(counts[operand.replace("d", "c")])) + "}" for operand in "dabc"]
    text.append(f"{opcode} {', '.join(lists)};")
    text += [f"st.global.{register} [to+{4 * size * i}], d{i};" for i in range(counts["c"])]
    return "\n".join(text + ["ret;", "}", ""])


def row(opcode):
    rows, k, d, a, b, saturate, how = parts(opcode)
    return f'    {{"{name(opcode)}", {rows}, {k}, "{d}", "{a}", "{b}", {"true" if saturate else "false"}, "{how}"}},\n'


def main():
    ptx, table = map(pathlib.Path, sys.argv[1:])
    ptx.write_text(".version 9.0\n.target sm_89\n.address_size 64\n" + "".join(map(kernel, opcodes())), encoding="utf-8")
    table.write_text("const MmaForm kForms[] = {\n" + "".join(map(row, opcodes())) + "};\n", encoding="utf-8")


if __name__ == "__main__":
    main()
