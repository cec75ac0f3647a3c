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


class Llama:
    """llama-server with `slots` of `context` tokens each."""

    def __init__(self, args, slots, threads, batch, context):
        self.args, self.port = args, free_port()
        self.flags = ["-np", slots, "-t", threads, "-b", batch, "-c", slots * context]
        self.name = "llama-server " + " ".join(map(str, self.flags))
        self.process, self.log = None, None

    def start(self):
        began = time.monotonic()
        self.log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        # Prompts never repeat here, so looking for them in a cache would only cost it time.
        command = [machine.program(self.args.peer, "llama-server"), "-m", self.args.model, "--host", "127.0.0.1", "--port",
                   self.port, *self.flags, "--cache-ram", 0, "--no-webui"]
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, start_new_session=True)
        favour(self.process.pid)
        while not asyncio.run(is_ready(self.port, "/health")):
            if self.process.poll() is not None or time.monotonic() - began > 120:
                self.log.seek(0)
                self.stop()
                raise machine.Failed(f"{self.name} did not get ready:\n{self.log.read()[-2000:]}")
            time.sleep(0.1)
        return round(time.monotonic() - began, 1)

    def pids(self):
        return {"llama-server": self.process.pid}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def parse_peer(args, text, context):
    """A Llama from "SLOTS:THREADS:BATCH"."""
    match = re.fullmatch(r"(\d+):(\d+):(\d+)", text)
    if not match:
        raise machine.Failed(f"{text}: SLOTS:THREADS:BATCH is needed, as in 8:2:512")
    slots, threads, batch = map(int, match.groups())
    return Llama(args, slots, threads, batch, context)
