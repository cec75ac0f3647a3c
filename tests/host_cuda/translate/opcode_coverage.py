#!/usr/bin/env python3
"""Is every instruction that the translator accepts executed by a test against its meaning, and all that nvcc emits?

    opcode_coverage.py [--emitted FILE.opcodes ...] --snippets FILE.ptx TEST.cc ...

Tests are the cases of opcode_cases.py, all of mma.sync (make_mma_test.py), and the kernels of PTX files that a test runs by name. A form (forms.py) is covered when
each of its alternatives is in an instruction of a test. What nvcc emits for our kernels must be tested as it is, but for the order
of modifiers and for those that change no value: orders and scopes of memory, hints to caches.
"""
import argparse
import pathlib
import sys

import forms
import make_mma_test
from opcode_cases import CASES
from ptx_parser import Instruction, parse


def opcodes_of_cases():
    for ptx, *_ in CASES:
        yield from opcodes_of(parse(".func f() { " + ptx + " }").functions[0])


def opcodes_of(function):
    return (item.opcode for item in function.body if isinstance(item, Instruction))


def opcodes_of_snippets(ptx, tests):
    """Kernels that no test names don't count; functions do, with those that call them."""
    run = "".join(t.read_text(encoding="utf-8") for t in tests)
    for function in parse(ptx.read_text(encoding="utf-8")).functions:
        if function.entry and f'"{function.name}"' not in run:
            sys.exit(f"{ptx}: no test runs {function.name}")
        yield from opcodes_of(function)


def alternatives():
    """Each (form, place, alternative); a form without any choice is one."""
    for form in forms.ALL:
        yield form, None, form.text
        for place, group in enumerate(form.groups):
            if len(group.alternatives) > 1:
                yield from ((form, place, a) for a in group.alternatives)


def covered(tested):
    seen = set()
    for opcode in tested:
        if not forms.find(opcode):
            sys.exit(f"{opcode}: tested, and no form allows it")
        for form, taken in forms.find(opcode):
            seen.add((form.text, None, form.text))
            seen |= {(form.text, place, a) for place, a in enumerate(taken) if len(form.groups[place].alternatives) > 1}
    return seen


NEUTRAL = set("weak relaxed acquire release acq_rel sc cta gpu sys gl ca cg cs lu cv wb wt nc uni aligned".split())


def essence(opcode):
    base, *modifiers = opcode.split(".")
    left = [m for m in modifiers if m not in NEUTRAL and not m.startswith(("L1::", "L2::"))]
    return base, tuple(m for m in left if m in forms.TYPES), frozenset(m for m in left if m not in forms.TYPES)


def say(place, alternative):
    return "any" if place is None else f"without .{alternative}" if alternative is None else f".{alternative}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--emitted", type=pathlib.Path, nargs="*", default=[])
    arguments.add_argument("--snippets", type=pathlib.Path, nargs=argparse.REMAINDER, required=True)
    options = arguments.parse_args()
    ptx = [p for p in options.snippets if p.suffix == ".ptx"]
    tests = [p for p in options.snippets if p.suffix == ".cc"]

    tested = set(opcodes_of_cases()) | set(make_mma_test.opcodes())
    for file in ptx:
        tested |= set(opcodes_of_snippets(file, tests))
    seen = covered(tested)
    wanted = list(alternatives())
    missing = {}
    for form, place, alternative in wanted:
        if (form.text, place, alternative) not in seen:
            missing.setdefault(form.text, []).append((place, alternative))
    emitted = sorted({word for file in options.emitted for word in file.read_text(encoding="utf-8").split()})
    essences = set(map(essence, tested))
    untested = [opcode for opcode in emitted if essence(opcode) not in essences]

    print(f"{len(forms.BY_BASE)} opcodes in {len(forms.ALL)} forms with {len(wanted)} alternatives, "
          f"{len(wanted) - sum(map(len, missing.values()))} of them tested, in {len(tested)} different instructions")
    print(f"nvcc emits {len(emitted)} different instructions for our kernels, {len(emitted) - len(untested)} of them tested:")
    for opcode in emitted:
        print(f"  {opcode}{'   NOT TESTED' if opcode in untested else ''}")
    for form, what in missing.items():
        print(f"NOT TESTED: {form}: " + ", ".join(say(*w) for w in what))
    sys.exit(1 if missing or untested else 0)


if __name__ == "__main__":
    main()
