"""Which lines of kernels/cuda were run on the test runtime: of kernels, whose translation leads back to the .cu, and of their host side.

    cmake -S . -B build-coverage -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=--coverage
    ninja -C build-coverage tests_host_cuda cuda_conformance_test
    ctest --test-dir build-coverage -L '^(host_cuda|cuda_long)$'
    python3 tests/host_cuda/coverage.py build-coverage [--lines]

One row a file: lines that have code, lines that ran, and, with --lines, those that did not. Needs gcov of the compiler.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tests and what only they use.
LEFT_OUT = ("_test.cc", "/testing/")


def counted(build):
    """{file: {line: times}} of kernels/cuda, over all programs."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    data = sorted(str(path.resolve()) for path in build.glob("kernels/cuda/**/*.gcda"))
    if not data:
        sys.exit(f"coverage.py: nothing ran in {build}: see --help")
    with tempfile.TemporaryDirectory() as folder:
        for path in data:
            done = subprocess.run(["gcov", "--json-format", "--stdout", path], cwd=folder, capture_output=True, text=True,
                                  check=True)
            for text in done.stdout.splitlines():
                found = json.loads(text)
                for file in found["files"]:
                    name = (pathlib.Path(found["current_working_directory"]) / file["file"]).resolve()
                    if not name.is_relative_to(ROOT / "kernels/cuda") or any(word in str(name) for word in LEFT_OUT):
                        continue
                    for line in file["lines"]:
                        lines[name.relative_to(ROOT)][line["line_number"]] += line["count"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder with --coverage whose tests have run")
    parser.add_argument("--lines", action="store_true", help="print the lines that did not run")
    args = parser.parse_args()
    sums = {"kernels": [0, 0], "host": [0, 0]}
    print("| file | lines | run |\n|---|---|---|")
    for name, lines in sorted(counted(args.build).items()):
        ran = sum(times > 0 for times in lines.values())
        kind = "kernels" if name.suffix in (".cu", ".cuh") else "host"
        sums[kind][0] += len(lines)
        sums[kind][1] += ran
        print(f"| {name} | {len(lines)} | {ran / len(lines):.1%} |")
        if args.lines and ran < len(lines):
            print("  not run: " + ", ".join(str(number) for number, times in sorted(lines.items()) if not times))
    for kind, (total, ran) in sums.items():
        if total:
            print(f"| **{kind}** | {total} | {ran / total:.1%} |")


if __name__ == "__main__":
    main()
