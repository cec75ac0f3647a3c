"""Registers, shared memory and spills of every kernel on every architecture, as ptxas reported them when it was built.

    python3 bench/cuda/resources.py [--build DIR] [--arch sm_80] [--check]

Shared memory is the static part; what a launch asks for besides is in the kernels' headers. With --check it is an error
if a kernel spills registers to memory, or if no kernel is found.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"entry function '(?P<name>\S+)' for '(?P<arch>\S+)'\n.*?\n\s+(?P<stack>\d+) bytes stack frame, "
                   r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
                   r"ptxas info\s+: Used (?P<registers>\d+) registers(?P<rest>.*)")


def kernels(text):
    for found in ENTRY.finditer(text):
        shared = re.search(r"(\d+) bytes smem", found["rest"])
        yield {"name": found["name"], "arch": found["arch"], "registers": int(found["registers"]),
               "shared": int(shared[1]) if shared else 0, "stack": int(found["stack"]),
               "spilled": int(found["stores"]) + int(found["loads"])}


def short(names):
    """Names without namespaces and parameters; templates' arguments stay."""
    shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    for name in shown.splitlines():
        name = re.sub(r"^void ", "", re.sub(r"sluice::kernels::cuda::|\(anonymous namespace\)::", "", name))
        yield re.split(r"\((?!KvWay)", name)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder")
    parser.add_argument("--arch", help="only this one")
    parser.add_argument("--check", action="store_true", help="fail if anything spills")
    args = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in sorted(args.build.glob("kernels/cuda/**/*.usage"))]
    found = [kernel for text in texts for kernel in kernels(text) if args.arch in (None, kernel["arch"])]
    if not found:
        sys.exit(f"resources.py: nothing in {args.build}: build backend_cuda.so with nvcc first")
    print("| kernel | arch | registers | static shared memory | stack | spilled bytes |\n|---|---|---|---|---|---|")
    for kernel, name in zip(found, short(kernel["name"] for kernel in found)):
        print(f"| {name} | {kernel['arch']} | {kernel['registers']} | {kernel['shared']} | {kernel['stack']} | {kernel['spilled']} |")
    if args.check and any(kernel["spilled"] for kernel in found):
        sys.exit("resources.py: registers are spilled")


if __name__ == "__main__":
    main()
