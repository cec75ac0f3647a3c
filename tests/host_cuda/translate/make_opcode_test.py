#!/usr/bin/env python3
"""A group of cases as a file of PTX and a test: make_opcode_test.py GROUP OUT.ptx OUT.cc"""
import pathlib
import re
import sys

from opcode_cases import GROUPS

# type of the test: register, type of ld and st
REGISTERS = {"z32": ("f32", "f32"), "z64": ("f64", "f64"), "pred": ("pred", "u8"), "h": ("b16", "b16"), "w": ("b16", "b16"),
             "hh": ("b32", "b32"), "ww": ("b32", "b32"), "u8": ("b16", "u8"), "s8": ("b16", "s8")}
HEAD = """.version 9.0
.target sm_90
.address_size 64
.func (.param .align 16 .b8 result[16]) echo(.param .align 16 .b8 given[16])
{
.reg .b64 x, y;
ld.param.v2.b64 {x, y}, [given];
st.param.v2.b64 [result], {x, y};
ret;
}
.global .align 128 .b8 scratch[16384];
.const .align 16 .b16 fixed[8] = {0x1101, 0x1202, 0x1303, 0x1404, 0x1505, 0x1606, 0x1707, 0x1808};
"""
# What a case may name, and what makes it, for 128 threads.
PLACES = {
    "cell": [".reg .u64 cell;", "mov.u64 cell, scratch;", "mov.u32 i, %tid.x;", "mad.wide.u32 cell, i, 128, cell;"],
    "box": [".reg .u32 box;", ".shared .align 16 .b8 boxes[2048];", "mov.u32 box, boxes;", "mov.u32 i, %tid.x;",
            "mad.lo.u32 box, i, 16, box;"],
}


def types(name):
    return REGISTERS.get(name, (name, name))


def entry(name, ptx, inputs, result):
    """Thread i of all has its inputs and its result in record i: a, b, c and d, 8 bytes each."""
    lines = [f".visible .entry {name}(.param .u64 records)", "{", ".reg .u64 record;", ".reg .u32 i, block, flag;",
             f".reg .{types(result)[0]} d;"]
    lines += [f".reg .{types(kind)[0]} {operand};" for operand, kind in zip("abc", inputs)]
    lines += ["mov.u32 i, %tid.x;", "mov.u32 block, %ctaid.x;", "mad.lo.u32 i, block, 128, i;", "ld.param.u64 record, [records];",
              "mad.wide.u32 record, i, 32, record;"]
    for k, (operand, kind) in enumerate(zip("abc", inputs)):
        if kind == "pred":
            lines += [f"ld.global.u8 flag, [record+{8 * k}];", f"setp.ne.u32 {operand}, flag, 0;"]
        else:
            lines.append(f"ld.global.{types(kind)[1]} {operand}, [record+{8 * k}];")
    for place, made in PLACES.items():
        if re.search(rf"\b{place}\b", ptx):
            lines += made
    lines.append(ptx)
    lines += ["selp.u32 flag, 1, 0, d;", "st.global.u32 [record+24], flag;"] if result == "pred" else \
        [f"st.global.{types(result)[1]} [record+24], d;"]
    return "\n".join(lines + ["ret;", "}", ""])


def test(group, number, ptx, inputs, result, meaning):
    kinds = ", ".join(f"&kTypeOfCase<T_{kind}>" for kind in inputs)
    values = " ".join(f"[[maybe_unused]] const auto {name} = Input<T_{kind}>(in[{i}]);"
                      for i, (name, kind) in enumerate(zip("abc", inputs)))
    meaning = re.sub(r"\bWrap\(", f"Wrap<T_{result}::type>(", meaning)
    return (f'    {{"{group}_{number}", "{ptx}", &kTypeOfCase<T_{result}>, {{{kinds}}}, [](const u64* in, void* out) {{\n'
            f"       {values} Result<T_{result}>(out, static_cast<T_{result}::type>({meaning})); }}}},\n")


def main():
    group, ptx, test_file = sys.argv[1:]
    cases = list(enumerate(GROUPS[group]))
    pathlib.Path(ptx).write_text(HEAD + "".join(entry(f"{group}_{i}", *c[:3]) for i, c in cases), encoding="utf-8")
    pathlib.Path(test_file).write_text(
        '#include "tests/host_cuda/testing/opcode_check.h"\n\nnamespace host_cuda::testing {\nnamespace {\n\n'
        "const OpcodeCase kCases[] = {\n" + "".join(test(group, i, *c) for i, c in cases) +
        f'}};\nconst bool registered = RegisterCases("{group.capitalize()}Opcodes", kCases);\n\n'
        "}  // namespace\n}  // namespace host_cuda::testing\n", encoding="utf-8")


if __name__ == "__main__":
    main()
