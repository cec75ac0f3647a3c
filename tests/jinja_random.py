"""Random templates and variables: what our interpreter makes of them is what jinja2 makes of them.

Variables that are handed in are not set: jinja2 takes those that a block sets for undefined in the blocks before that in it.
"""
import random

VARIABLES = {
    "i": 3, "j": -2, "z": 0, "f": 2.5, "g": 1e-7, "t": True, "n": None, "s": " Hé<llo>\n wörld  ", "e": "", "u": "a,b,,c",
    "l": [3, 1, 2, 2], "m": ["b", "A", "c", "a"], "d": {"b": 1, "a": {"x": [1, "y"]}, "items": 5}, "x": [],
    "o": [{"r": "user", "k": 2, "v": None}, {"r": "tool", "k": 1}, {"r": "user", "k": 3, "v": "é'\""}],
}
NAMES = list(VARIABLES) + ["missing", "w", "q"]
LITERALS = ["0", "1", "7", "2.5", "''", "'a'", "\"it's\\n\"", "'é\\t'", "true", "false", "none", "[]", "{}", "(1, 'a')", "'%s|'",
            "['x', 1]", "{'k': 'v', 'b': 2}", "1_000", "0x1f", "1e3"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "**"]
COMPARE = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "select|first", "map('string')|join('+')", "reverse|join", "last", "list", "string", "int", "float", "abs", "reverse|list",
           "sort", "unique|list", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "join(', ')", "join", "default('dflt')",
           "default(1, true)", "d", "replace('a', 'XY')", "replace('', '-')", "replace('l', '', 1)", "indent(2)", "indent(1, true)",
           "round", "round(1)", "round(0, 'floor')", "sum", "min", "max", "items|list", "dictsort", "map('upper')|list", "map(attribute='r')|list",
           "map(attribute='k', default=0)|list", "select|list", "reject('none')|list", "select('string')|list", "selectattr('r', 'equalto', 'user')|list",
           "selectattr('v')|list", "rejectattr('k', 'gt', 1)|list", "batch(2)|list", "batch(2, 'z')|list", "slice(2)|list", "groupby('r')", "center(9)",
           "string|truncate(5)", "string|truncate(6, true, '')", "string|urlencode", "format(1)", "attr('r')", "count", "sort(reverse=true)",
           "sort(attribute='k')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true",
         "false", "odd", "even", "divisibleby(2)", "divisibleby 3", "in [1, 'a', none]", "eq(3)", "ne 3", "lt(2)", "ge(0)", "lower", "upper",
         "sameas(none)", "callable", "escaped", "filter", "test"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('a H')", "split()", "split(',')", "split('l', 1)", "rsplit('l', 1)", "rsplit(none, 1)",
           "splitlines()", "splitlines(true)", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "startswith('a')",
           "startswith((' ', 'b'))", "endswith('c')", "endswith('  ')", "replace('l', 'LL')", "replace('', '.')", "find('l')", "rfind('l')",
           "index('l')", "count('l')", "count('')", "join(['a', 'b'])", "join(m)", "partition(',')", "rpartition(',')", "isdigit()",
           "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "removeprefix(' ')", "removesuffix('c')", "zfill(6)",
           "ljust(20)", "rjust(20, '*')", "center(21)", "format(1, a=2)", "items()", "keys()", "values()", "get('b')", "get('zz', 9)",
           "get('a').x", "items", "copy()", "index(2)", "append(1)", "pop()", "update({})"]
SUFFIXES = [".r", ".a.x", "['b']", "[0]", "[-1]", "[99]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[-3:2]", "[5:1]", ".items", ".missing", "['x']",
            ".missing.more", "[none]", "[1:3][0]"]


# What jinja2 computes when it compiles, or writes with an address, or where Python's ints grow on.
OUT_OF_SCOPE_TEXTS = ("at 0x", "<built-in", "<Namespace", "<bound", "<function", "<class")
OUT_OF_SCOPE_ERRORS = ("64 bits", "is not subscriptable", "takes too many steps", "the result of ** is no number",
                       "has no text")


def is_out_of_scope(text, error):
    return any(t in text for t in OUT_OF_SCOPE_TEXTS) or any(e in error for e in OUT_OF_SCOPE_ERRORS)


class Source:
    """`works` tells whether an expression has a value: most that are drawn don't, so some more are drawn where it matters."""

    def __init__(self, seed, works=lambda expression: True):
        self.rng = random.Random(seed)
        self.works = works
        self.statements_left = 0  # of the template that is being drawn

    def pick(self, choices):
        return self.rng.choice(choices)

    def expression(self, depth=0):
        kind = self.rng.randint(0, 16 if depth < 3 else 3)
        if kind <= 2:
            return self.pick(NAMES)
        if kind == 3:
            return self.pick(LITERALS)
        a = self.expression(depth + 1)
        if kind <= 5:
            return f"({a} {self.pick(BINARY)} {self.expression(depth + 1)})"
        if kind == 6:
            return f"({a} {self.pick(COMPARE)} {self.expression(depth + 1)})"
        if kind <= 9:
            return f"({a})|{self.pick(FILTERS)}"
        if kind == 10:
            return f"({a} is {self.pick(['', 'not '])}{self.pick(TESTS)})"
        if kind <= 12:
            return f"({a}).{self.pick(METHODS)}"
        if kind <= 14:
            return f"({a}){self.pick(SUFFIXES)}"
        if kind == 15:
            return f"({a} {self.pick(['and', 'or'])} {self.pick(['', 'not '])}{self.expression(depth + 1)})"
        return f"({a} if {self.expression(depth + 1)}{self.pick(['', ' else ' + self.expression(depth + 1)])})"

    def working_expression(self):
        for _ in range(30):
            expression = self.expression(self.pick([0, 1, 2]))
            if self.works(expression):
                return expression
        return "1"

    def tag(self, content):
        return "{%" + self.pick(["", "", "", "-", "+"]) + f" {content} " + self.pick(["", "", "", "-", "+"]) + "%}"

    def data(self):
        return self.pick(["", " ", "\n", "  \n ", "text", "a\n  ", "\n\n", "\t", "{ x }", "{#- note -#}\n", "{# c #}  ", "é😀",
                          "{% raw %} {{ x }} {% endraw %}\n", "\r\n", "{%- raw -%}  r {% endraw -%}  "])

    def body(self, depth):
        return self.data() + "".join(self.statement(depth + 1) + self.data() for _ in range(self.rng.randint(1, 3)))

    def statement(self, depth=0):
        self.statements_left -= 1
        kind = self.rng.randint(0, 14 if depth < 4 and self.statements_left > 0 else 5)
        e = self.working_expression if self.rng.random() < 0.98 else self.expression
        if kind <= 3:
            return "{{" + self.pick(["", "-", " "]) + e() + self.pick(["", " -", " "]) + "}}"
        if kind == 4:
            return self.tag(f"set {self.pick(['w', 'q', 'w, q', 'ns.a'])} = {e()}")
        if kind == 5:
            return "{{ ns.a }}" if self.rng.random() < 0.5 else "{{ helper(" + e() + ") }}"
        if kind <= 7:
            middle = self.tag("elif " + e()) + self.body(depth) if self.rng.random() < 0.3 else ""
            end = self.tag("else") + self.body(depth) if self.rng.random() < 0.5 else ""
            return self.tag("if " + e()) + self.body(depth) + middle + end + self.tag("endif")
        if kind <= 10:
            target, items = self.pick([("w", e()), ("w", "range(4)"), ("w", "o"), ("w, q", "d.items()"), ("w", "l")])
            test = f" if {e()}" if self.rng.random() < 0.2 else ""
            extra = self.pick(["", "{{ loop.index }}{{ loop.last }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.previtem }}/{{ loop.nextitem }}",
                               self.tag("if loop.index > 2") + self.tag(self.pick(["break", "continue"])) + self.tag("endif"),
                               "{{ loop.changed(w) }}{{ loop.revindex0 }}"])
            end = self.tag("else") + self.body(depth) if self.rng.random() < 0.2 else ""
            return self.tag(f"for {target} in {items}{test}") + extra + self.body(depth) + end + self.tag("endfor")
        if kind == 11:
            name = self.pick(["w", "q"])
            filters = self.pick(["", " | upper", " | trim | length"])
            return self.tag(f"set {name}{filters}") + self.body(depth) + self.tag("endset")
        if kind == 12:
            return self.tag("with w = " + e()) + self.body(depth) + self.tag("endwith")
        if kind == 13:
            return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'b')"])) + self.body(depth) + self.tag("endfilter")
        return self.tag("call(v) wrap(" + e() + ")") + "{{ v }}" + self.body(depth) + self.tag("endcall")

    def template(self):
        head = ("{% set ns = namespace(a=1) %}{% macro helper(a, b='B') %}[{{ a }}{{ b }}{{ varargs }}]{% endmacro %}"
                "{% macro wrap(a) %}<{{ caller(a) }}>{% endmacro %}")
        self.statements_left = 25
        return head + self.body(0)
