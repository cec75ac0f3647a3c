"""Branches, calls, ends."""
from ptx_parser import Group, Name


def bra(op):
    op.take("uni")
    op.count(1)
    return f"goto {op.names.label(op.operands[0].name)};"


def brx(op):
    op.need("idx")
    op.take("uni")
    op.count(2)
    cases = " ".join(f"case {i}: goto {op.names.label(label)};"
                     for i, label in enumerate(op.names.targets(op.operands[1].name, op.line)))
    return f"switch ({op.value(0, 'u32')}) {{ {cases} default: Trap(\"brx.idx beyond its targets\"); }}"


def ret(op):
    op.take("uni")
    op.count(0)
    return "return;"


def exit_(op):
    op.count(0)
    return "return;" if op.names.in_entry() else "ExitThread();"


def trap(op):
    op.count(0)
    return f"Trap(\"{op.base}\");"


def nanosleep(op):
    op.take_types()
    op.count(1)
    return "NanoSleep();"


def call(op):
    """call (results), function, (parameters), prototype; all parameters are memory of the caller."""
    op.take("uni")
    operands = list(op.operands)
    results = operands.pop(0).items if isinstance(operands[0], Group) else []
    function = operands.pop(0)
    params = operands.pop(0).items if operands and isinstance(operands[0], Group) else []
    arguments = [op.names.param(p.name, op.line) for p in results + params]
    if not isinstance(function, Name):
        op.fail("unexpected function")
    target = op.names.function(function.name, len(arguments), op.line)
    return f"{target}({', '.join(arguments)});"


TABLE = {"bra": bra, "brx": brx, "ret": ret, "exit": exit_, "trap": trap, "brkpt": trap, "nanosleep": nanosleep, "call": call}
