"""Stand-ins for the CUDA libraries that PyPI's torch links against, so that it runs on a CPU without gigabytes of them.

PyPI's torch for Linux loads its CUDA parts whatever it is used for, and the loader wants each library and symbol that they
name. Every function written here answers 100, which is cudaErrorNoDevice: torch finds no device and calls no other. They lie
beside torch's own libraries, where the loader looks first. Needs readelf and a C compiler.
"""
import pathlib
import re
import subprocess
import tempfile

LIBRARIES = ("libcu", "libnccl", "libnvrtc", "libnvshmem", "libnvJitLink", "libnvToolsExt")
# What is wanted without a version does not say from which library.
PLAIN = re.compile(r"(nccl|cuFile|curand|cusparseLt|cupti|cudnn|nvshmem|cu(?=[A-Z]))\w+$")


def readelf(library, *flags):
    return subprocess.run(["readelf", "-W", *flags, library], capture_output=True, text=True, check=True).stdout


def needs(library, folder):
    return {name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(library, "-d"))
            if name.startswith(LIBRARIES) and not (folder / name).exists()}


def versions(library):
    """Library -> names of the versions that `library` wants of it."""
    found, name = {}, None
    for line in readelf(library, "-V").splitlines():
        if match := re.search(r"File: (\S+)", line):
            name = match[1]
        elif (match := re.search(r"Name: (\S+)", line)) and name:
            found.setdefault(name, set()).add(match[1])
    return found


def wanted(library):
    """Undefined symbols with the version they want, '' where it is none."""
    for line in readelf(library, "--dyn-syms").splitlines():
        columns = line.split()
        if len(columns) > 7 and columns[6] == "UND":
            name, _, version = columns[7].partition("@")
            yield name, version.lstrip("@")


def write(path, symbols):
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "versions")
        names = sorted({name for name, _ in symbols})
        source.write_text("".join(f"long {name}(void) {{ return 100; }}\n" for name in names), encoding="ascii")
        nodes = {version: [n for n, v in symbols if v == version] for _, version in sorted(symbols) if version}
        script.write_text("".join(f"{version} {{ global: {'; '.join(own)}; }};\n" for version, own in nodes.items()),
                          encoding="ascii")
        subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", "-w", f"-Wl,-soname,{path.name}", "-o", path, source,
                        *([f"-Wl,--version-script={script}"] if nodes else [])], check=True)


def write_all(folder):
    libraries = sorted(folder.glob("libtorch*.so")) + sorted(folder.glob("libc10*.so"))
    symbols = {symbol for library in libraries for symbol in wanted(library)}
    plain = {(name, version) for name, version in symbols if not version and PLAIN.match(name)}
    for stub in sorted(set().union(*(needs(library, folder) for library in libraries))):
        names = set().union(*(versions(library).get(stub, set()) for library in libraries))
        own = {symbol for symbol in symbols if symbol[1] in names} or plain
        write(folder / stub, own)
        print(f"{folder / stub}: {len(own)} functions")
