#!/usr/bin/env python3
"""opcode_cases.py as a file of PTX and a test: make_opcode_test.py OUT.ptx OUT.cc"""
import pathlib
import re
import sys

from opcode_cases import CASES

# type of the test: register, type of ld and st
REGISTERS = {"m32": ("f32", "f32"), "pred": ("pred", "u8"), "h": ("b16", "b16"), "w": ("b16", "b16"), "hh": ("b32", "b32"), "ww": ("b32", "b32"),
             "u8": ("b16", "u8"), "s8": ("b16", "s8")}


def types(name):
    return REGISTERS.get(name, (name, name))


def entry(number, ptx, inputs, result):
    lines = [f".visible .entry case_{number}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd, .param .u32 n)", "{",
             ".reg .u64 base, index;", ".reg .u32 i, block, size, count, flag;", ".reg .pred done;", f".reg .{types(result)[0]} d;"]
    lines += [f".reg .{types(kind)[0]} {name};" for name, kind in zip("abc", inputs)]
    lines += ["mov.u32 i, %tid.x;", "mov.u32 block, %ctaid.x;", "mov.u32 size, %ntid.x;", "mad.lo.u32 i, block, size, i;",
              "ld.param.u32 count, [n];", "setp.ge.u32 done, i, count;", "@done bra END;"]
    for name, kind in zip("abc", inputs):
        size = {"pred": 1, "h": 2, "w": 2, "hh": 4, "ww": 4}.get(kind) or int(kind[1:]) // 8
        lines += [f"ld.param.u64 base, [p{name}];", f"mad.wide.u32 base, i, {size}, base;"]
        if kind == "pred":
            lines += ["ld.global.u8 flag, [base];", f"setp.ne.u32 {name}, flag, 0;"]
        else:
            lines.append(f"ld.global.{types(kind)[1]} {name}, [base];")
    size = {"pred": 4, "h": 2, "w": 2, "hh": 4, "ww": 4}.get(result) or int(result[1:]) // 8
    lines += [ptx, "ld.param.u64 base, [pd];", f"mad.wide.u32 base, i, {size}, base;"]
    lines += ["selp.u32 flag, 1, 0, d;", "st.global.u32 [base], flag;"] if result == "pred" else \
        [f"st.global.{types(result)[1]} [base], d;"]
    return "\n".join(lines + ["END:", "ret;", "}", ""])


def test(number, ptx, inputs, result, meaning):
    kinds = ", ".join(["T_" + result] + ["T_" + kind for kind in inputs])
    params = ", ".join(f"[[maybe_unused]] T_{kind}::type {name}" for name, kind in zip("abc", inputs))
    meaning = re.sub(r"\bWrap\(", f"Wrap<T_{result}::type>(", meaning)
    return (f'TEST(Opcodes, Case{number}) {{\n  Check<{kinds}>("case_{number}", "{ptx}", []({params}) {{ '
            f"return static_cast<T_{result}::type>({meaning}); }});\n}}\n")


def main():
    ptx, test_file = map(pathlib.Path, sys.argv[1:])
    ptx.write_text(".version 9.0\n.target sm_80\n.address_size 64\n" +
                   "".join(entry(i, *c[:3]) for i, c in enumerate(CASES)), encoding="utf-8")
    opcodes = sorted({word for c in CASES for word in re.findall(r"[a-z]\w*(?:\.[\w:]+)+", c[0])})
    test_file.write_text('#include "tests/host_cuda/testing/opcode_check.h"\n\nnamespace host_cuda::testing {\nnamespace {\n\n' +
                         "".join(test(i, *c) for i, c in enumerate(CASES)) +
                         "\n}  // namespace\n}  // namespace host_cuda::testing\n", encoding="utf-8")
    print(f"{len(CASES)} cases, {len(opcodes)} opcodes")


if __name__ == "__main__":
    main()
