"""All cases of single instructions, in groups: each becomes a file of PTX and a test (make_opcode_test.py)."""
import importlib

from case_list import CASES

GROUPS = {}
for _name in ("integer", "float", "compare", "convert", "memory"):
    _before = len(CASES)
    importlib.import_module(f"cases_{_name}")
    GROUPS[_name] = CASES[_before:]
