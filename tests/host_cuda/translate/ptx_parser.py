"""Reads PTX, as nvcc writes it, into functions, variables and instructions; knows no opcode."""
import dataclasses
import re

from ptx_types import size_of

TOKEN = re.compile(
    r'(?P<string>"(?:\\.|[^"\\])*")'
    r"|(?P<float>0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16})"
    r"|(?P<int>0[xX][0-9A-Fa-f]+U?|\d+U?)"
    r"|(?P<name>[.%$A-Za-z_](?:[\w$.]|::)*)"
    r"|(?P<mark>[{}()\[\],;:|!+\-=@<>*])"
    r"|(?P<newline>\n)"
    r"|(?P<space>[ \t\r]+)"
)


class PtxError(Exception):
    """What is wrong, with the line of the PTX."""

    def __init__(self, line, what):
        super().__init__(f"line {line}: {what}")


@dataclasses.dataclass
class Token:
    kind: str
    text: str
    line: int


# Operands.
@dataclasses.dataclass
class Name:
    """A register, a special register, a symbol or a label; `offset` in bytes; negated: !p."""
    name: str
    offset: int = 0
    negated: bool = False


@dataclasses.dataclass
class Integer:
    value: int


@dataclasses.dataclass
class FloatBits:
    bits: int
    size: int


@dataclasses.dataclass
class Address:
    base: object  # Name or Integer
    offset: int = 0


@dataclasses.dataclass
class Vector:
    items: list


@dataclasses.dataclass
class Group:
    """(a, b) of a call."""
    items: list


@dataclasses.dataclass
class Two:
    """d|p"""
    first: object
    second: object


# What a body consists of.
@dataclasses.dataclass
class Instruction:
    opcode: str
    operands: list
    line: int
    guard: Name = None


@dataclasses.dataclass
class Label:
    name: str


@dataclasses.dataclass
class Line:
    """.loc: where the following comes from. `inlined_at`: the place (file, line, column) of the call, of an inlined function."""
    file: int
    line: int
    column: int = 0
    inlined_at: tuple = None


@dataclasses.dataclass
class Scope:
    opens: bool


@dataclasses.dataclass
class Registers:
    type: str
    names: list


@dataclasses.dataclass
class Variable:
    space: str  # param, shared, local, global, const
    type: str
    name: str
    align: int
    count: int = 1  # elements; 0: of unknown length
    is_array: bool = False
    initial: object = None
    external: bool = False

    @property
    def bytes(self):
        return self.count * size_of(self.type)


@dataclasses.dataclass
class Targets:
    """.branchtargets"""
    name: str
    labels: list


@dataclasses.dataclass
class Function:
    name: str
    entry: bool
    results: list
    params: list
    body: list
    max_threads: int = 0
    line: int = 0


@dataclasses.dataclass
class Module:
    files: dict
    variables: list
    functions: list


def tokenize(text):
    """Comments are gone; newlines stay, as .loc and .file end with one."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    tokens, at, line = [], 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise PtxError(line, f"unreadable: {text[at:at + 20]!r}")
        at = match.end()
        if match.lastgroup == "newline":
            line += 1
        elif match.lastgroup != "space":
            tokens.append(Token(match.lastgroup, match.group(), line))
    tokens.append(Token("end", "", line))
    return tokens


class Parser:
    def __init__(self, text):
        self.tokens = tokenize(text)
        self.at = 0

    def peek(self, ahead=0):
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self):
        token = self.peek()
        self.at += 1
        return token

    def accept(self, text):
        if self.peek().text == text and self.peek().kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text):
        token = self.next()
        if token.text != text:
            raise PtxError(token.line, f"expected {text!r}, found {token.text!r}")

    def skip_line(self):
        line = self.peek().line
        while self.peek().line == line and self.peek().kind != "end":
            self.next()

    def skip_block(self):
        self.expect("{")
        depth = 1
        while depth:
            token = self.next()
            if token.kind == "end":
                raise PtxError(token.line, "a { without its }")
            depth += {"{": 1, "}": -1}.get(token.text, 0)

    def integer(self):
        sign = -1 if self.accept("-") else 1
        token = self.next()
        if token.kind != "int":
            raise PtxError(token.line, f"expected a number, found {token.text!r}")
        return sign * int(token.text.rstrip("U"), 0)

    # Module level.
    def module(self):
        module = Module({}, [], [])
        while self.peek().kind != "end":
            self.top(module)
        return module

    def top(self, module):
        token = self.peek()
        external = False
        while self.peek().text in (".visible", ".weak", ".extern", ".common"):
            external |= self.next().text == ".extern"
        word = self.peek().text
        if word in (".version", ".target", ".address_size", ".pragma", ".alias"):
            self.skip_line()
        elif word == ".file":
            self.next()
            number = self.integer()
            module.files[number] = self.next().text.strip('"')
            self.skip_line_rest(token.line)
        elif word == ".section":
            self.next()
            self.next()
            self.skip_block()
        elif word in (".entry", ".func"):
            function = self.function()
            if function is not None:
                module.functions.append(function)
        elif word in (".global", ".const", ".shared"):
            module.variables.append(self.variable(external))
        else:
            raise PtxError(token.line, f"unknown directive {word!r}")

    def skip_line_rest(self, line):
        while self.peek().line == line and self.peek().kind != "end":
            self.next()

    def function(self):
        line = self.peek().line
        entry = self.next().text == ".entry"
        results = self.param_list() if not entry and self.peek().text == "(" else []
        name = self.next().text
        params = self.param_list() if self.peek().text == "(" else []
        max_threads = 0
        while self.peek().text not in ("{", ";"):
            directive = self.next()
            if directive.text in (".maxntid", ".reqntid"):
                max_threads = self.integer()
                while self.accept(","):
                    max_threads *= self.integer()
            elif directive.text in (".minnctapersm", ".maxnreg", ".pragma"):
                self.next()
                while self.accept(","):
                    self.next()
            elif directive.text not in (".noreturn", ".unique"):
                raise PtxError(directive.line, f"unknown directive {directive.text!r} of a function")
        if self.accept(";"):
            return None
        self.expect("{")
        return Function(name, entry, results, params, self.body(), max_threads, line)

    def param_list(self):
        self.expect("(")
        params = []
        while not self.accept(")"):
            params.append(self.declarator("param", self.expect_space(".param")))
            self.accept(",")
        return params

    def expect_space(self, space):
        self.expect(space)
        return False

    def variable(self, external):
        space = self.next().text[1:]
        variable = self.declarator(space, external)
        if self.accept("="):
            variable.initial = self.initial()
            if variable.is_array and variable.count == 0:
                variable.count = len(variable.initial)
        self.expect(";")
        return variable

    def declarator(self, space, external):
        align, kind = 0, None
        while self.peek().text.startswith("."):
            word = self.next()
            if word.text == ".align":
                align = self.integer()
            elif word.text in (".ptr", ".global", ".const", ".shared", ".local", ".attribute", ".managed"):
                continue
            else:
                kind = word.text[1:]
        name = self.next()
        if kind is None:
            raise PtxError(name.line, f"no type of {name.text}")
        count, is_array = 1, False
        while self.accept("["):
            is_array = True
            count *= 0 if self.peek().text == "]" else self.integer()
            self.expect("]")
        return Variable(space, kind, name.text, max(align, size_of(kind)), count, is_array, None, external)

    def initial(self):
        if self.accept("{"):
            items = []
            while not self.accept("}"):
                item = self.initial()
                items += item if isinstance(item, list) else [item]
                self.accept(",")
            return items
        if self.peek().text == "generic":
            self.next()
            self.expect("(")
            value = self.initial()
            self.expect(")")
            return value
        return self.operand()

    # Bodies.
    def body(self):
        items, depth = [], 1
        while depth:
            token = self.peek()
            if token.kind == "end":
                raise PtxError(token.line, "a body without its end")
            if token.text in ("{", "}"):
                self.next()
                depth += 1 if token.text == "{" else -1
                if depth:
                    items.append(Scope(token.text == "{"))
            elif token.text == ";":
                self.next()
            elif token.text.startswith("."):
                self.directive(items)
            elif self.peek(1).text == ":" and token.kind == "name":
                self.next()
                self.next()
                self.labelled(token.text, items)
            else:
                items.append(self.instruction())
        return items

    def labelled(self, name, items):
        if self.peek().text == ".branchtargets":
            self.next()
            labels = [self.next().text]
            while self.accept(","):
                labels.append(self.next().text)
            items.append(Targets(name, labels))
        elif self.peek().text == ".callprototype":
            while not self.accept(";"):
                self.next()
        else:
            items.append(Label(name))

    def directive(self, items):
        token = self.peek()
        word = token.text
        if word == ".loc":
            self.next()
            place = [self.integer() for _ in range(3)]
            inlined_at = None
            if self.accept(","):
                while not self.accept("inlined_at"):
                    self.next()
                inlined_at = tuple(self.integer() for _ in range(3))
            items.append(Line(*place, inlined_at))
        elif word == ".reg":
            self.next()
            kind = self.next().text[1:]
            names = []
            while True:
                name = self.next().text
                if self.accept("<"):
                    names += [f"{name}{i}" for i in range(self.integer())]
                    self.expect(">")
                else:
                    names.append(name)
                if not self.accept(","):
                    break
            self.expect(";")
            items.append(Registers(kind, names))
        elif word in (".local", ".shared", ".param", ".global", ".const"):
            items.append(self.variable(False))
        elif word == ".pragma":
            while not self.accept(";"):
                self.next()
        else:
            raise PtxError(token.line, f"unknown directive {word!r}")

    def instruction(self):
        line = self.peek().line
        guard = None
        if self.accept("@"):
            negated = self.accept("!")
            guard = Name(self.next().text, 0, negated)
        opcode = self.next()
        if opcode.kind != "name":
            raise PtxError(line, f"expected an instruction, found {opcode.text!r}")
        operands = []
        while not self.accept(";"):
            operands.append(self.operand())
            if self.peek().text not in (",", ";"):
                raise PtxError(line, f"unexpected {self.peek().text!r} in an instruction")
            self.accept(",")
        return Instruction(opcode.text, operands, line, guard)

    def operand(self):
        first = self.simple()
        if self.accept("|"):
            return Two(first, self.simple())
        return first

    def simple(self):
        token = self.peek()
        if self.accept("{"):
            return Vector(self.items("}"))
        if self.accept("("):
            return Group(self.items(")"))
        if self.accept("["):
            return self.address()
        if self.accept("!"):
            return Name(self.next().text, 0, True)
        if token.text == "-" or token.kind == "int":
            return Integer(self.integer())
        if token.kind == "float":
            self.next()
            return FloatBits(int(token.text[2:], 16), 4 if token.text[1] in "fF" else 8)
        if token.kind != "name":
            raise PtxError(token.line, f"expected an operand, found {token.text!r}")
        self.next()
        return Name(token.text, self.offset())

    def items(self, closing):
        items = []
        while not self.accept(closing):
            items.append(self.operand())
            self.accept(",")
        return items

    def offset(self):
        if self.accept("+"):
            return self.integer()
        if self.peek().text == "-" and self.peek(1).kind == "int":
            return self.integer()
        return 0

    def address(self):
        if self.peek().kind == "int":
            base, offset = Integer(self.integer()), 0
        else:
            name = self.next()
            base, offset = Name(name.text), self.offset()
        self.expect("]")
        return Address(base, offset)


def parse(text):
    return Parser(text).module()
