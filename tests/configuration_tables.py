#!/usr/bin/env python3
"""The tables of docs/configuration.md, from the options of the servers themselves.

    tests/configuration_tables.py --write     # after an option has changed; needs the servers in SLUICE_BUILD (default: build)
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build"))
DOCUMENT = ROOT / "docs/configuration.md"


def table(program):
    # Without a home there is no default folder, which would be this machine's.
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "SLUICE_CACHE")}
    return subprocess.run([BUILD / program, "--print-options"], check=True, capture_output=True, text=True,
                          env=environment).stdout


def up_to_date(text):
    return re.sub(r"(<!-- (sluice_\w+) -->\n).*?(<!-- end -->)", lambda m: m[1] + table(m[2]) + m[3], text, flags=re.S)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    DOCUMENT.write_text(up_to_date(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
