"""A router and workers as real processes on free ports, in a folder of their own; nothing outlives the test.

Environment: SLUICE_BUILD, the build folder (ctest sets it); SLUICE_TEST_MODEL, the real model (deploy/test sets it).
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
try:
    from sluice_client import Client
except ImportError as error:
    sys.exit(f"{error}: the end-to-end tests need tests/requirements.txt; deploy/test makes that environment")

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build"))
START_TIMEOUT = 120  # seconds; sanitizers are slow


def tiny_model(folder):
    """The small random model, made by the committed generator."""
    path = pathlib.Path(folder) / "tiny.gguf"
    subprocess.run([BUILD / "tests/make_tiny_model", path], check=True, stdout=subprocess.DEVNULL)
    return path


def real_model():
    path = os.environ.get("SLUICE_TEST_MODEL")
    if not path:
        cache = os.environ.get("SLUICE_CACHE") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sluice")
        path = os.path.join(cache, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.exists(path):
        raise AssertionError(f"no model at {path}: deploy/setup fetches it, SLUICE_TEST_MODEL names another")
    return pathlib.Path(path)


def wait_until(condition, timeout, what):
    """Polls until `condition()` is true and returns its value; `what` may be a function that tells the latest state."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(0.02)


class Server:
    """One server process; `ready` is the line it printed, `fields` its NAME=VALUE pairs."""

    def __init__(self, arguments, log):
        self.arguments = [str(a) for a in arguments]
        self.log = pathlib.Path(log)
        with open(log, "w", encoding="utf-8") as out:
            # setpriv becomes the server, which dies with this test. Not preexec_fn: that forks for real, and gRPC's
            # threads of this process do not survive a fork.
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self.arguments],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.ready = None
        self.fields = {}

    def wait_ready(self):
        def ready():
            match = re.search(r"^sluice_\w+ ready: .*$", self.text(), re.M)
            if match is None and self.process.poll() is not None:
                raise AssertionError(f"{self.arguments[0]} ended with {self.process.returncode}:\n{self.text()}")
            return match
        self.ready = wait_until(ready, START_TIMEOUT, lambda: f"no ready line:\n{self.text()}").group(0)
        self.fields = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', self.ready))
        return self

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self, sig=signal.SIGTERM, timeout=30):
        """Signals it and waits for its end; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.arguments[0]} did not end within {timeout} s of signal {sig}:\n{self.text()}")


NO_MOVES = ("--max-moves", 0)  # of a router: a request whose worker fails ends with the error


class Cluster:
    """with Cluster(workers=1) as cluster: cluster.client.generate("hello")

    `workers` are of role both; prefill and decode workers apart: Cluster(workers=0, prefill=1, decode=1).
    """

    def __init__(self, workers=1, model=None, worker_flags=(), router_flags=(), prefill=0, decode=0, prefill_flags=(),
                 decode_flags=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test-"))
        self.model = model or tiny_model(self.folder)
        self.worker_flags = list(worker_flags)  # of all; the other lists are added to it
        self.flags_of = {"both": [], "prefill": list(prefill_flags), "decode": list(decode_flags)}
        self.router_flags = list(router_flags)
        self.wanted = {"prefill": prefill, "decode": decode, "both": workers}
        self.workers = []
        self.router = None
        self.client = None
        self.api_key = None  # that its own client shows
        self.use_router_flag = True  # of workers; else worker_flags say how they find a router
        self.keep = False  # the folder with the logs, when it is closed
        self._started = 0
        self._lock = threading.Lock()  # servers may be started on several threads

    def __enter__(self):
        try:
            self.start_router()
            for role, count in self.wanted.items():
                for _ in range(count):
                    self.start_worker(role=role, wait=False)
            for worker in self.workers:
                worker.wait_ready()
            self.wait_active(sum(self.wanted.values()))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def _log(self, name):
        with self._lock:
            self._started += 1
            return self.folder / f"{self._started:02}-{name}.log"

    def start_router(self, port=0, http_port=0):
        self.router = Server([BUILD / "sluice_router", "--model", self.model, "--grpc-port", port, "--http-port",
                              http_port, *self.router_flags], self._log("router")).wait_ready()
        self.port = int(self.router.fields["grpc"].rsplit(":", 1)[1])
        if self.client:
            self.client.close()
        self.client = Client(self.address, key=self.api_key)

    def start_worker(self, port=0, wait=True, role="both", flags=None):
        """`flags`: in the place of those of its role."""
        binary = "sluice_prefill" if role == "prefill" else "sluice_decode"
        own_flags = self.flags_of[role] if flags is None else flags
        router = ["--router", self.address] if self.use_router_flag else []
        worker = Server([BUILD / binary, "--role", role, *router, "--model", self.model, "--port", port, "--packed-cache",
                         BUILD / "tests/packed", *self.worker_flags, *own_flags], self._log(role))
        worker.role = role
        self.workers.append(worker)
        return worker.wait_ready() if wait else worker

    def of_role(self, role):
        """The running ones, the newest first."""
        return [w for w in reversed(self.workers) if w.role == role and w.process.poll() is None]

    def active(self):
        return [w for w in self.client.state().workers if w.state == 1]

    def wait_active(self, count, timeout=20):
        wait_until(lambda: len(self.active()) == count, timeout, lambda: f"{count} active workers:\n{self.client.state()}")

    def blocks_free(self):
        return sum(w.blocks_free for w in self.active())

    def check_alive(self):
        """The cluster still answers."""
        answer = self.client.generate("ab", max_tokens=2, ignore_eos=True)
        assert len(answer.token_ids) == 2, answer

    def cli(self, *arguments, **popen):
        return subprocess.run([BUILD / "sluice", arguments[0], "--router", self.address, *arguments[1:]],
                              capture_output=True, text=True, timeout=120, check=False, **popen)

    def close(self):
        if self.client:
            self.client.close()
        for server in [*self.workers, self.router]:
            if server and server.process.poll() is None:
                server.process.kill()
                server.process.wait()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
