"""One instruction on its way to C++: its modifiers are taken off one by one; operands become C++ expressions."""
from ptx_parser import Address, FloatBits, Integer, Name, PtxError, Two, Vector
from ptx_types import SIZES, cpp, is_float, register

ROUNDINGS = {"rn": "kNearest", "rz": "kZero", "rm": "kDown", "rp": "kUp",
             "rni": "kNearest", "rzi": "kZero", "rmi": "kDown", "rpi": "kUp"}
PLAIN = "Float{}"  # rounds to nearest, and nothing else: what C++ does
SCOPES = ("cta", "gpu", "sys", "cluster")


class Operation:
    def __init__(self, instruction, names):
        self.instruction = instruction
        self.line = instruction.line
        self.names = names  # what a name is: names.value(name), names.register(name)
        self.base, *self.modifiers = instruction.opcode.split(".")
        self.operands = instruction.operands

    def fail(self, what):
        raise PtxError(self.line, f"{self.instruction.opcode}: {what}")

    # Modifiers.
    def take(self, *choices):
        """The one of the choices that is there, or None."""
        for choice in choices:
            if choice in self.modifiers:
                self.modifiers.remove(choice)
                return choice
        return None

    def need(self, *choices):
        found = self.take(*choices)
        if found is None:
            self.fail("needs one of ." + ", .".join(choices))
        return found

    def take_types(self, count=1):
        """The last modifiers, which are types."""
        types = self.modifiers[-count:]
        if len(types) < count or any(t not in SIZES and t != "pred" for t in types):
            self.fail("unknown type")
        del self.modifiers[-count:]
        return types[0] if count == 1 else types

    def take_matching(self, prefix):
        for modifier in self.modifiers:
            if modifier.startswith(prefix):
                self.modifiers.remove(modifier)
                return modifier
        return None

    def end(self):
        if self.modifiers:
            self.fail("unknown modifier ." + ", .".join(self.modifiers))

    def rounding(self):
        return ROUNDINGS[self.take("rn", "rz", "rm", "rp") or "rn"]

    def float_mode(self):
        """The modifiers of floating-point arithmetic, as a ptx::Float."""
        fields = [f".rounding = Rounding::{self.rounding()}"]
        fields += [f".{field} = true" for modifier, field in
                   (("ftz", "flush"), ("sat", "saturate"), ("relu", "relu"), ("NaN", "nan")) if self.take(modifier)]
        return "Float{" + ", ".join(fields) + "}" if fields != [".rounding = Rounding::kNearest"] else PLAIN

    # Operands.
    def count(self, *allowed):
        if len(self.operands) not in allowed:
            self.fail(f"{len(self.operands)} operands")

    def value(self, operand, kind):
        """An expression of the C++ type of `kind`."""
        if isinstance(operand, int):
            if operand >= len(self.operands):
                self.fail("too few operands")
            operand = self.operands[operand]
        target = cpp(kind)
        if isinstance(operand, Integer):
            if kind == "pred":
                return "true" if operand.value else "false"
            if is_float(kind):
                return f"As<{target}>(u64{{{operand.value & (1 << 64) - 1}u}})" if "16" in kind else f"{target}({operand.value})"
            return f"{target}({operand.value & (1 << 64) - 1}ull)"
        if isinstance(operand, FloatBits):
            bits = f"u{8 * operand.size}{{0x{operand.bits:x}u}}"
            if operand.size == 8 and kind == "f32":
                return f"static_cast<f32>(As<f64>({bits}))"
            return f"__builtin_bit_cast({target}, {bits})" if is_float(kind) and SIZES[kind] == operand.size else f"As<{target}>({bits})"
        if isinstance(operand, Name):
            if kind == "pred":
                return ("!" if operand.negated else "") + self.names.value(operand.name, self.line)
            text = self.names.value(operand.name, self.line)
            if operand.offset:
                return f"As<{target}>(({text} + {operand.offset}))"
            return self.as_type(text, self.names.register_type(operand.name), target)
        self.fail("unexpected operand")
        return None

    @staticmethod
    def as_type(text, register_type, target):
        """What As<target>(text) is, of a register where its type is known, without a call: compiling calls is what takes time."""
        if register_type == target:
            return text
        if register_type in (None, "bool"):
            return f"As<{target}>({text})"
        if target[0] in "us":
            return f"{target}({text})"
        if target in ("f32", "f64") and target[1:] == register_type[1:]:
            return f"__builtin_bit_cast({target}, {text})"
        return f"As<{target}>({text})"

    def address(self, operand):
        if isinstance(operand, int):
            operand = self.operands[operand]
        if not isinstance(operand, Address):
            self.fail("expected an address")
        if isinstance(operand.base, Integer):
            return f"u64{{{operand.base.value}u}}"
        base = f"static_cast<u64>({self.names.value(operand.base.name, self.line)})"
        return f"{base} + s64{{{operand.offset}}}" if operand.offset else base

    def put(self, operand, expression, kind=None):
        """`kind`: the PTX type of the expression, where it is known; of integers the expression may be wider."""
        if isinstance(operand, int):
            operand = self.operands[operand]
        if not isinstance(operand, Name):
            self.fail("unexpected destination")
        if operand.name == "_":
            return f"(void)({expression});"
        target = self.names.destination(operand.name, self.line)
        to = self.names.register_type(operand.name)
        kind = cpp(kind) if kind else "unknown"
        if to == "bool":
            kind = "unknown"
        if kind[0] in "us" and kind[1:].isdigit():
            return f"{target} = {expression};" if kind[1:] == to[1:] else f"{target} = {kind}({expression});"
        if kind in ("f32", "f64") and kind[1:] == to[1:]:
            return f"{target} = __builtin_bit_cast({to}, {expression});"
        return f"Put({target}, {expression});"

    def items(self, operand):
        if isinstance(operand, int):
            operand = self.operands[operand]
        return operand.items if isinstance(operand, Vector) else [operand]

    def array(self, operand, kind, count):
        """The Items of a vector operand."""
        items = self.items(operand)
        if len(items) != count:
            self.fail(f"a vector of {len(items)}, not {count}")
        return f"Items<{cpp(kind)}, {count}>{{" + ", ".join(self.value(i, kind) for i in items) + "}"

    def put_array(self, operand, expression, kind=None):
        items = self.items(operand)
        if len(items) == 1:
            return self.put(items[0], f"{expression}.at[0]", kind)
        return f"{{ const auto out = {expression}; " + \
            " ".join(self.put(item, f"out.at[{i}]", kind) for i, item in enumerate(items)) + " }"

    def pair(self, operand):
        if isinstance(operand, int):
            operand = self.operands[operand]
        return (operand.first, operand.second) if isinstance(operand, Two) else (operand, None)

    def register_type(self, operand):
        return register(self.names.type(operand.name, self.line))
