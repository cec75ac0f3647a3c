"""An etcd of its own for a test: one process on free ports of this machine, with its data in the test's folder."""
import pathlib
import shutil
import signal
import socket
import subprocess
import time


def missing():
    """Why there can be none; empty where there can."""
    return "" if shutil.which("etcd") else "there is no etcd here; Debian's package etcd-server has it (deploy/setup)"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Etcd:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.port, self._peer_port = free_port(), free_port()
        self.process = None

    @property
    def registry(self):
        return f"etcd://127.0.0.1:{self.port}/test"

    def start(self, empty=False):
        if empty:
            shutil.rmtree(self.folder / "etcd-data", ignore_errors=True)
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        with open(self.folder / "etcd.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "etcd", "--data-dir", self.folder / "etcd-data",
                 "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--unsafe-no-fsync"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_listening(self, timeout=30):
        end = time.monotonic() + timeout
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < end, (self.folder / "etcd.log").read_text(encoding="utf-8")
            time.sleep(0.02)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
