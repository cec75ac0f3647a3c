#!/usr/bin/env python3
"""How long workers take to start on a machine without a GPU, with the CUDA backend beside their programs and without it.

    bench/cuda/startup.py --build build [--model FILE] [--pairs 20]

From the start of the process to its ready line, and the time of the CPU that it took, which other work on the machine changes less. The programs lie in two folders (hard links), of which one has
the plugin's file; starts take turns, and who is first changes. Without --model: the tiny random one. Also prints the sizes of the
programs and of the plugin's files, and whether a program needs a library of CUDA's.
"""
import argparse
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

PROGRAMS = {"sluice_prefill": "prefill", "sluice_decode": "decode"}


def start(program, role, model, cache):
    """Seconds to the ready line, and of the CPU."""
    began, cpu = time.perf_counter(), cpu_of_children()
    with subprocess.Popen([program, "--role", role, "--model", model, "--packed-cache", cache, "--kv-bytes", "64M",
                           "--max-context", "512", "--log-level", "error"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        line = worker.stdout.readline()
        took = time.perf_counter() - began
        worker.kill()
    if " ready: " not in line:
        raise SystemExit(f"{program} did not get ready")
    return took, cpu_of_children() - cpu


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def folders(build, where):
    made = {}
    for name in ("without", "with"):
        made[name] = where / name
        made[name].mkdir()
        for program in PROGRAMS:
            os.link(build / program, made[name] / program)
    plugin = next(p for p in (build / "backend_cuda.so", build / "backend_cuda_host.so") if p.exists())
    shutil.copy(plugin, made["with"] / "backend_cuda.so")
    return made


def spread(values):
    quarters = statistics.quantiles(values, n=4)
    return f"{statistics.median(values) * 1000:.1f} ms ({quarters[0] * 1000:.1f} to {quarters[2] * 1000:.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    build = args.build.resolve()
    with tempfile.TemporaryDirectory(dir=build) as text:
        where = pathlib.Path(text)
        model = args.model or where / "tiny.gguf"
        if not args.model:
            subprocess.run([build / "tests/make_tiny_model", model], check=True, stdout=subprocess.DEVNULL)
        made = folders(build, where)
        print("| worker, seconds of | without the plugin | with it | median of the differences |\n|---|---|---|---|")
        for program, role in PROGRAMS.items():
            took = {name: [] for name in made}
            for name in made:
                start(made[name] / program, role, model, where)  # files are in memory, weights are packed
            for pair in range(args.pairs):
                for name in list(made)[::1 if pair % 2 else -1]:
                    took[name].append(start(made[name] / program, role, model, where))
            for kind, what in enumerate(("the clock", "the CPU")):
                without, with_it = ([times[kind] for times in took[name]] for name in made)
                apart = statistics.median(b - a for a, b in zip(without, with_it, strict=True))
                print(f"| {role}, {what} | {spread(without)} | {spread(with_it)} | {apart * 1000:+.2f} ms |")
    for file in (*PROGRAMS, "backend_cuda.so", "backend_cuda_host.so"):
        if (build / file).exists():
            needs = subprocess.run(["ldd", build / file], capture_output=True, text=True, check=True).stdout
            cuda = [line.split()[0] for line in needs.splitlines() if any(w in line for w in ("cuda", "nccl", "cublas"))]
            print(f"{file}: {(build / file).stat().st_size:,} bytes, needs of CUDA: {', '.join(cuda) or 'nothing'}")


if __name__ == "__main__":
    main()
