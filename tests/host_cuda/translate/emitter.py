"""Writes a parsed module as C++: a static function for each function, a struct of bytes for each variable."""
import re

import forms
from external import EXTERNAL
from opcodes import TABLE
from operation import Operation
from ptx_parser import (FloatBits, Instruction, Integer, Label, Line, Name, PtxError, Registers, Scope, Targets, Variable)
from ptx_types import register, size_of

# Headers of the toolkit, whose lines tell a reader nothing.
TOOLKIT = re.compile(r"/(cuda[^/]*|targets/[^/]+)/include/")
REDZONE = 64  # SharedMemory::kRedzone
SPECIAL = {
    **{f"%{ptx}.{axis}": f"{cpp}().{axis}" for axis in "xyz"
       for ptx, cpp in (("tid", "ThreadIndex"), ("ntid", "BlockSize"), ("ctaid", "BlockIndex"), ("nctaid", "GridSize"))},
    "%laneid": "LaneId()", "%warpid": "WarpId()", "%nwarpid": "WarpCount()", "%smid": "u32{0}", "%nsmid": "u32{1}",
    "%gridid": "GridId()", "%clock": "static_cast<u32>(Clock())", "%clock64": "Clock()", "%clock_hi": "static_cast<u32>(Clock() >> 32)",
    "%globaltimer": "Clock()", "%globaltimer_lo": "static_cast<u32>(Clock())", "WARP_SZ": "u32{32}",
    "%dynamic_smem_size": "DynamicSharedBytes()", "%total_smem_size": "TotalSharedBytes()",
    "%lanemask_eq": "(1u << LaneId())", "%lanemask_lt": "((1u << LaneId()) - 1)",
    "%lanemask_le": "((1u << LaneId()) | ((1u << LaneId()) - 1))",
    "%lanemask_ge": "~((1u << LaneId()) - 1)", "%lanemask_gt": "~((1u << LaneId()) | ((1u << LaneId()) - 1))",
}


def identifier(name):
    return re.sub(r"[^\w]", "_", name.replace("$", "_S_"))


def braces(items):
    return "{" + ", ".join(map(str, items)) + "}"


class Names:
    """What the names in one function stand for."""

    def __init__(self, module, function):
        self.module = module
        self.is_entry = function.entry
        self.scopes = [{}]
        self.count = 0
        self.registers = []  # (C++ name, C++ type)
        self.memory = []     # declarations of local and parameter memory
        self.branch_targets = {}
        self.calls = {}      # of inlined functions: place -> place of the call
        self.used_shared = set()

    def declare(self, name, kind):
        cpp_name = f"r{self.count}_{identifier(name)}" if len(self.scopes) > 1 else f"r_{identifier(name)}"
        self.count += 1
        self.registers.append((cpp_name, register(kind)))
        self.scopes[-1][name] = ("register", cpp_name, kind)

    def declare_memory(self, variable):
        cpp_name = f"m{self.count}_{identifier(variable.name)}"
        self.count += 1
        fresh = f" std::memset({cpp_name}, 0xff, sizeof {cpp_name});" if variable.space == "local" else ""
        self.memory.append(f"alignas({max(16, variable.align)}) u8 {cpp_name}[{max(1, variable.bytes)}];{fresh}")
        self.scopes[-1][variable.name] = ("memory", cpp_name, None)

    def bind(self, name, cpp_name):
        self.scopes[0][name] = ("memory", cpp_name, None)

    def find(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def value(self, name, line):
        found = self.find(name)
        if found is not None:
            return found[1] if found[0] == "register" else f"reinterpret_cast<u64>({found[1]})"
        if name in SPECIAL:
            return SPECIAL[name]
        return self.module.symbol(name, line, self)

    def destination(self, name, line):
        found = self.find(name)
        if found is None or found[0] != "register":
            raise PtxError(line, f"{name} is no register")
        return found[1]

    def type(self, name, line):
        self.destination(name, line)
        return self.find(name)[2]

    def register_type(self, name):
        """The C++ type of a register, or None."""
        found = self.find(name)
        return register(found[2]) if found is not None and found[0] == "register" else None

    def param(self, name, line):
        found = self.find(name)
        if found is None or found[0] != "memory":
            raise PtxError(line, f"{name} is no parameter")
        return found[1]

    def label(self, name):
        return f"L_{identifier(name)}"

    def targets(self, name, line):
        if name not in self.branch_targets:
            raise PtxError(line, f"no .branchtargets {name}")
        return self.branch_targets[name]

    def in_entry(self):
        return self.is_entry

    def function(self, name, count, line):
        found = self.find(name)
        if found is not None:
            return f"reinterpret_cast<void (*)({', '.join(['u8*'] * count)})>({found[1]})"
        return self.module.function(name, line, self)


class Emitter:
    def __init__(self, module, name):
        self.module = module
        self.name = name
        self.variables = {v.name: v for v in module.variables if v.space in ("global", "const")}
        self.shared = {v.name: v for v in module.variables if v.space == "shared"}
        self.functions = {f.name: f for f in module.functions if not f.entry}
        self.calls = {}        # function -> functions it names
        self.shared_of = {}    # function -> shared variables it names
        self.externals = set()
        self.opcodes = set()

    # What names outside of functions stand for.
    def symbol(self, name, line, names):
        if name in self.variables:
            return f"reinterpret_cast<u64>(v_{identifier(name)})"
        if name in self.shared:
            names.used_shared.add(name)
            if self.shared[name].count == 0:
                return "DynamicShared()"
            return f"(SharedBase() + at_{identifier(name)})"
        if name in self.functions:
            names.called.add(name)
            return f"reinterpret_cast<u64>(&fn_{identifier(name)})"
        raise PtxError(line, f"unknown name {name!r}")

    def function(self, name, line, names):
        if name in self.functions:
            names.called.add(name)
        elif name in EXTERNAL:
            self.externals.add(name)
        else:
            raise PtxError(line, f"call of {name!r}, which is not defined")
        return f"fn_{identifier(name)}"

    def emit(self):
        bodies = [self.body(f) for f in self.module.functions]
        # Under sanitizers a test runs a few times: not optimising the bodies, which are long, straight and call functions that are
        # optimised, saves more in compiling than it costs in running. Without, the tests run them a hundred times.
        parts = ['#include "tests/host_cuda/ptx/ptx.h"', "", "using namespace host_cuda;", "using namespace host_cuda::ptx;", "",
                 "#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)", '#pragma GCC optimize("O0")', "#endif", "",
                 "namespace {", ""]
        parts += [EXTERNAL[name] for name in sorted(self.externals)]
        parts += [f"void fn_{identifier(f.name)}({self.signature(f)});" for f in self.functions.values()]
        parts += self.shared_layout()
        parts += self.variable_definitions()
        parts += bodies
        parts += ["", "const bool registered = [] {"]
        parts += [self.registration(f) for f in self.module.functions if f.entry]
        parts += [f'  RegisterVariable({{"{v.name}", v_{identifier(v.name)}, {v.bytes}, {"true" if v.space == "const" else "false"}}});'
                  for v in self.variables.values() if not v.external]
        parts += ["  return true;", "}();", "", "}  // namespace", ""]
        return "\n".join(parts)

    # Shared memory: every variable at its own place, whatever the kernel, with room between.
    def shared_layout(self):
        lines, self.offsets, at = [], {}, REDZONE
        for variable in self.shared.values():
            if variable.count == 0:
                continue
            align = max(16, variable.align)
            at = (at + align - 1) // align * align
            self.offsets[variable.name] = at
            lines.append(f"[[maybe_unused]] constexpr u64 at_{identifier(variable.name)} = {at};")
            at += variable.bytes + REDZONE
        return lines

    def shared_names(self, function, seen):
        """Those that a function and what it calls name."""
        if function in seen:
            return set()
        seen.add(function)
        names = set(self.shared_of[function])
        for callee in self.calls[function]:
            names |= self.shared_names(callee, seen)
        return names

    def variable_definitions(self):
        for variable in self.variables.values():
            if variable.external:
                raise PtxError(0, f"{variable.name} is defined in another file")
        lines = [f"alignas({max(16, v.align)}) u8 v_{identifier(v.name)}[{max(1, v.bytes)}] = {self.bytes_of(v)};"
                 for v in self.variables.values()]
        pointers = [self.pointers_of(v) for v in self.variables.values()]
        pointers = [p for p in pointers if p]
        if pointers:
            lines += ["const bool pointers_set = [] {", *pointers, "  return true;", "}();"]
        return lines

    def initial_items(self, variable):
        items = variable.initial
        return [] if items is None else items if isinstance(items, list) else [items]

    def bytes_of(self, variable):
        data = bytearray()
        size = size_of(variable.type)
        for item in self.initial_items(variable):
            if isinstance(item, Integer):
                data += (item.value & (1 << 8 * size) - 1).to_bytes(size, "little")
            elif isinstance(item, FloatBits):
                data += item.bits.to_bytes(item.size, "little")
            else:
                data += bytes(size)
        return "{" + ", ".join(map(str, data.rstrip(b"\0"))) + "}"

    def pointers_of(self, variable):
        """Initial values that are addresses."""
        text = ""
        for i, item in enumerate(self.initial_items(variable)):
            if not isinstance(item, Name):
                continue
            if item.name in self.variables:
                target = f"u64(v_{identifier(item.name)})"
            elif item.name in self.functions:
                target = f"u64(&fn_{identifier(item.name)})"
            else:
                raise PtxError(0, f"{variable.name}: unknown name {item.name!r}")
            text += f"  {{ const u64 p = {target} + {item.offset}; std::memcpy(v_{identifier(variable.name)} + {8 * i}, &p, 8); }}\n"
        return text.rstrip("\n")

    # Functions.
    def signature(self, function):
        return ", ".join(f"[[maybe_unused]] u8* p{i}" for i in range(len(function.results) + len(function.params)))

    def body(self, function):
        names = Names(self, function)
        names.called = set()
        head = self.bind_params(function, names)
        lines = []
        for item in function.body:
            self.item(item, names, lines)
        self.calls[function.name] = names.called
        self.shared_of[function.name] = names.used_shared
        declared = [f"  [[maybe_unused]] {kind} {name} = static_cast<{kind}>(-1);" for name, kind in names.registers]
        return "\n".join(["", head, "  [[maybe_unused]] const SharedWindow window = CurrentWindow();",
                          "  [[maybe_unused]] bool carry = false, no_carry = false;", *declared,
                          *("  " + m for m in names.memory), *lines, "}"])

    def bind_params(self, function, names):
        if not function.entry:
            for i, param in enumerate(function.results + function.params):
                names.bind(param.name, f"p{i}")
            return f"void fn_{identifier(function.name)}({self.signature(function)}) {{"
        function.layout, at = [], 0
        for param in function.params:
            at = (at + param.align - 1) // param.align * param.align
            function.layout.append((at, param.bytes))
            names.bind(param.name, f"(params + {at})")
            at += param.bytes
        function.param_bytes = at
        return f"void k_{identifier(function.name)}([[maybe_unused]] const u8* params) {{"

    def place(self, line, calls):
        """Where a line is for a reader: for a function of the toolkit, where it was called. `calls`: place -> its caller's."""
        place = (line.file, line.line, line.column)
        calls[place] = line.inlined_at
        passed = set()  # a function may be inlined into itself
        while TOOLKIT.search(self.module.files[place[0]]) and calls.get(place) and place not in passed:
            passed.add(place)
            place = calls[place]
        return f'#line {max(1, place[1])} "{self.module.files[place[0]]}"'

    def item(self, item, names, lines):
        if isinstance(item, Line):
            lines.append(self.place(item, names.calls))
        elif isinstance(item, Scope):
            if item.opens:
                names.scopes.append({})
            else:
                names.scopes.pop()
        elif isinstance(item, Registers):
            for name in item.names:
                names.declare(name, item.type)
        elif isinstance(item, Variable):
            self.declare(item, names)
        elif isinstance(item, Targets):
            names.branch_targets[item.name] = item.labels
        elif isinstance(item, Label):
            lines.append(f"{names.label(item.name)}: ;")
        else:
            lines.append("  " + self.instruction(item, names))

    def declare(self, variable, names):
        if variable.space in ("param", "local"):
            names.declare_memory(variable)
        elif variable.space == "shared":
            self.shared[variable.name] = variable
        else:
            self.variables[variable.name] = variable

    def instruction(self, instruction, names):
        operation = Operation(instruction, names)
        if operation.base not in TABLE:
            why = forms.REFUSED.get(operation.base)
            raise PtxError(instruction.line, f"{'unsupported' if why else 'unknown'} opcode {instruction.opcode!r}{f': {why}' if why else ''}")
        if not forms.find(instruction.opcode):
            operation.fail("no such form; known: " + "  ".join(forms.expand(form.text) for form in forms.BY_BASE[operation.base]))
        text = TABLE[operation.base](operation)
        operation.end()
        self.opcodes.add(instruction.opcode)
        if instruction.guard is None:
            return text
        condition = ("!" if instruction.guard.negated else "") + names.value(instruction.guard.name, instruction.line)
        return f"if ({condition}) {{ {text} }}"

    def registration(self, function):
        shared = sorted((self.offsets[n], self.shared[n].bytes, n) for n in self.shared_names(function.name, set())
                        if n in self.offsets)
        used = 0
        for name in self.offsets:  # as the device lays them out, without room between
            if any(name == n for _, _, n in shared):
                align = self.shared[name].align
                used = (used + align - 1) // align * align + self.shared[name].bytes
        local = sum(item.bytes for item in function.body if isinstance(item, Variable) and item.space == "local")
        fields = {
            "name": f'"{function.name}"', "body": f"k_{identifier(function.name)}", "param_bytes": function.param_bytes,
            "params": braces(braces([a, b]) for a, b in function.layout), "static_shared_bytes": used,
            "shared": braces(braces([o, b, f'"{n}"']) for o, b, n in shared), "local_bytes": local,
            "max_threads": function.max_threads or 1024,
        }
        return "  RegisterKernel(" + braces(f".{field} = {value}" for field, value in fields.items()) + ");"
