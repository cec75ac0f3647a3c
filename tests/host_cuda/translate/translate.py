#!/usr/bin/env python3
"""PTX, as nvcc makes it for a .cu, to C++ that the engine runs: translate.py IN.ptx OUT.cc [--opcodes FILE]

What it does not know ends it, with the opcode and the line: a kernel is never run half understood.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from emitter import Emitter  # noqa: E402
from ptx_parser import Instruction, Line, PtxError, parse  # noqa: E402


def source_line(module, line):
    """The line of the .cu that a line of the PTX comes from, as far as it says."""
    if module is None:
        return ""
    for function in module.functions:
        last = None
        for item in function.body:
            if isinstance(item, Line):
                last = item
            elif isinstance(item, Instruction) and item.line == line:
                return f" ({module.files[last.file]}:{last.line}, in {function.name})" if last else f" (in {function.name})"
    return ""


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ptx", type=pathlib.Path)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--opcodes", type=pathlib.Path, help="also write the opcodes that were met, one a line")
    options = arguments.parse_args()
    module = None
    try:
        module = parse(options.ptx.read_text(encoding="utf-8"))
        emitter = Emitter(module, options.ptx.name)
        text = emitter.emit()
    except PtxError as error:
        line = int(str(error).split(":")[0].removeprefix("line "))
        sys.exit(f"{options.ptx}: {error}{source_line(module, line)}")
    options.out.write_text(text, encoding="utf-8")
    if options.opcodes:
        options.opcodes.write_text("".join(f"{o}\n" for o in sorted(emitter.opcodes)), encoding="utf-8")


if __name__ == "__main__":
    main()
