"""Starts and stops the servers under comparison, all of them on free ports and at the same priority."""
import asyncio
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import machine
import openai_client


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def favour(pid):
    """A server has a session of its own, so it needs the client's priority once more."""
    try:
        pathlib.Path(f"/proc/{pid}/autogroup").write_text("-19", encoding="ascii")
        machine.Rivals.ours.add(machine.Rivals.group(pid)[0])
    except OSError:
        pass


def rss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024)
    return 0


async def is_ready(port, path):
    try:
        _, writer, status, _ = await openai_client.request(port, path)
        writer.close()
        return status == 200
    except (OSError, IndexError, ValueError):
        return False


class Sluice:
    """A cluster of deploy/up; `shape` are its flags."""

    seeds = True  # it takes a seed for each request

    def __init__(self, args, shape):
        self.args, self.shape, self.port = args, shape, free_port()
        self.name = "sluice " + (" ".join(shape) or "split")
        self.state = tempfile.mkdtemp(prefix="sluice-peers-")

    def start(self):
        began = time.monotonic()
        done = subprocess.run(
            [machine.ROOT / "deploy/up", "--no-setup", "--state-dir", self.state, "--port", str(self.port), "--grpc-port",
             str(free_port()), "--model", self.args.model, *self.shape],
            env={**os.environ, "SLUICE_BUILD": str(self.args.build)}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise machine.Failed(f"deploy/up {' '.join(self.shape)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        for pid in self.pids().values():
            favour(pid)
        return round(time.monotonic() - began, 1)

    def pids(self):
        return {path.stem: int(path.read_text(encoding="ascii").split()[0])
                for path in sorted(pathlib.Path(self.state, "run").glob("*.pid"))}

    def stop(self):
        subprocess.run([machine.ROOT / "deploy/down", "--state-dir", self.state, "--quiet"], check=False)
        shutil.rmtree(self.state, ignore_errors=True)


class Process:
    """A server of one command, and what that starts."""

    seeds = True

    def __init__(self, name):
        self.name, self.port = name, free_port()
        self.process, self.log = None, None

    def launch(self, command, patience, **environment):
        """Seconds until it is ready."""
        began = time.monotonic()
        self.log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True, env={**os.environ, **environment})
        favour(self.process.pid)
        while not asyncio.run(is_ready(self.port, "/health")):
            if self.process.poll() is not None or time.monotonic() - began > patience:
                self.stop()
                self.log.seek(0)
                raise machine.Failed(f"{self.name} did not get ready:\n{self.log.read()[-2000:]}")
            time.sleep(0.1)
        return round(time.monotonic() - began, 1)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # it, or what it left
        except ProcessLookupError:
            pass
        self.process.wait()


class Llama(Process):
    """llama-server with `slots` of `context` tokens each."""

    def __init__(self, args, slots, threads, batch, context):
        self.args = args
        self.flags = ["-np", slots, "-t", threads, "-b", batch, "-c", slots * context]
        super().__init__("llama-server " + " ".join(map(str, self.flags)))

    def start(self):
        # Prompts never repeat here, so looking for them in a cache would only cost it time.
        return self.launch([machine.program(self.args.peer, "llama-server"), "-m", self.args.model, "--host", "127.0.0.1",
                            "--port", self.port, *self.flags, "--cache-ram", 0, "--no-webui"], 120)

    def pids(self):
        return {"llama-server": self.process.pid}


class Vllm(Process):
    """vLLM's server for CPUs on the same weights in bf16: `slots` sequences of `context` tokens, `batch` tokens a step."""

    seeds = False  # a seeded prompt that takes more than one step ends its worker: "CPU Generator does not use offset"

    def __init__(self, args, slots, threads, batch, context):
        self.args, self.threads, self.home = args, threads, args.vllm
        self.flags = ["--max-num-seqs", slots, "--max-num-batched-tokens", batch, "--max-model-len", context]
        super().__init__(f"vllm {' '.join(map(str, self.flags))}, {threads} threads")

    def model(self):
        """A folder with the model as vLLM reads it, written once for each file."""
        stat = self.args.model.stat()
        folder = self.home / "models" / f"{self.args.model.stem}-{stat.st_size}-{stat.st_mtime_ns}"
        if not folder.exists():
            fresh = pathlib.Path(tempfile.mkdtemp(dir=self.home))
            done = subprocess.run([machine.program(self.home / "bin", "python"), machine.ROOT / "bench/peers/hf_model.py",
                                   self.args.model, fresh], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise machine.Failed(f"hf_model.py failed:\n{done.stderr[-2000:]}")
            folder.parent.mkdir(exist_ok=True)
            fresh.rename(folder)
        return folder

    def start(self):
        cores = sorted(os.sched_getaffinity(0))
        # Its own choice, one core for its front and the others for threads, or these cores whatever its front needs.
        bind = "auto" if self.threads == len(cores) - 1 else ",".join(map(str, cores[:self.threads]))
        environment = {
            "VLLM_CPU_OMP_THREADS_BIND": bind, "LD_PRELOAD": str(self.home / "lib/libiomp5.so"),
            "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CACHE_ROOT": str(self.home / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.home / "cache/inductor"), "VLLM_USE_AOT_COMPILE": "0", "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
        }
        # The first start with new flags compiles for minutes. Prompts never repeat, as above.
        return self.launch([machine.program(self.home / "bin", "vllm"), "serve", self.model(), "--host", "127.0.0.1", "--port",
                            self.port, "--dtype", "bfloat16", *self.flags, "--no-enable-prefix-caching",
                            "--disable-uvicorn-access-log", "--disable-log-stats"], 600, **environment)

    def pids(self):
        """Its front, engine and worker: all of the session that it leads."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(path.name)) != self.process.pid:
                    continue
                name = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:  # it has ended
                continue
            if int(path.name) == self.process.pid or name.startswith("VLLM::"):
                found[name.split()[0].removeprefix("VLLM::") if name.startswith("VLLM::") else "front"] = int(path.name)
        return found


def parse_peer(kind, args, text, context):
    """A Llama or a Vllm from "SLOTS:THREADS:BATCH"."""
    match = re.fullmatch(r"(\d+):(\d+):(\d+)", text)
    if not match:
        raise machine.Failed(f"{text}: SLOTS:THREADS:BATCH is needed, as in 8:2:512")
    slots, threads, batch = map(int, match.groups())
    return kind(args, slots, threads, batch, context)
