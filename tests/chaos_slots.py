"""The processes that chaos hurts. Each fault is proven before it is counted: by /proc, by an exit code, by a log, by
what the router then says of the worker."""
import os
import re
import signal
import socket
import time

import grpc

import processes
from chaos_judge import bad_lines
from cluster import wait_until

START = 60  # seconds until a started worker is in the router's list
END = 8     # seconds from a signal to the end; promised are two, and two more for ranks
REACH = 5  # seconds in which a planned fault of the transfer is waited for
_WORD = {"corrupt": "corrupting", "lose": "losing", "stall": "losing", "fail": "failing"}


def free_port(rng):
    """Below those that the system gives to outgoing connections: nobody takes it while its owner is dead."""
    for _ in range(1000):
        port = rng.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")


class Slot:
    """What is one process for the others, whichever incarnation; ranks included. One thread at a time, but `pids`."""

    def __init__(self, run, name, role, port, flags):
        self.run, self.name, self.role, self.port, self.flags = run, name, role, port, flags
        self.server = None
        self.ranks = []   # processes of the ranks but the first
        self.fault = ""   # the plan it was started with
        self.away = None  # the disturbance that its faults are
        self._read = 0    # of the log of `server`
        self._incarnation = 0

    def pids(self):
        return [self.server.process.pid, *self.ranks]

    # ---- life ----

    def start(self, fault=""):
        self._read, self.fault = 0, fault
        if self.role == "router":
            self.run.cluster.start_router(port=self.port, http_port=self.run.http_port)
            self.server = self.run.cluster.router
            return
        flags = [*self.flags, *(["--fault", fault] if fault else [])]
        self.server = self.run.cluster.start_worker(port=self.port, wait=False, role=self.role, flags=flags)
        self.server.wait_ready()
        self.ranks = processes.children(self.server.process.pid)
        self._await_active()

    def _await_active(self):
        """It is a new incarnation on the old port, and the router knows."""
        left, last = START, None
        while left > 0:
            try:
                last = self.run.state()
                found = [w for w in last.workers if w.port == self.port and w.state == 1]
                if found and found[0].pid == self.server.process.pid and found[0].incarnation != self._incarnation:
                    self._incarnation = found[0].incarnation
                    return
                left -= 0.05
            except grpc.RpcError:
                pass  # the router is down, or stopped; that has an end
            time.sleep(0.05)
        raise AssertionError(f"{self.name} is not active {START} s after its start:\n{last}")

    def check_alive(self):
        if self.server.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended by itself with {self.server.process.returncode}: "
                                 f"{self.server.log}\n{self.server.text()[-1500:]}")

    def check_log(self, allowed=()):
        """Of what was written since the last call."""
        text = self.server.text()
        new, self._read = text[self._read:], len(text)
        allowed = list(allowed)
        if self.role == "decode" and self.run.corrupted:
            allowed.append("has the wrong checksum")
        for line in bad_lines(new, allowed):
            self.run.wrong(f"{self.name} wrote: {line} ({self.server.log})")

    # ---- faults ----

    def kill(self, event):
        pids = self.pids()
        code = self.server.end(signal.SIGKILL)
        if code != -signal.SIGKILL:
            raise AssertionError(f"{self.name} was killed and ended with {code}")
        wait_until(lambda: not any(map(processes.lives, pids)), 5, f"{self.name}: its ranks {pids} outlive it")
        self._again(event)

    def kill_rank(self, event):
        rank = event.which % len(self.ranks)
        pids, pid = self.pids(), self.ranks[rank]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.server.process.poll() is not None, 5, f"{self.name} outlives its rank {rank + 1}")
        code = self.server.process.returncode
        if code != 1 or f"rank {rank + 1} (process {pid}) was killed" not in self.server.text():
            raise AssertionError(f"{self.name} ended with {code} after its rank {rank + 1} was killed: {self.server.log}")
        wait_until(lambda: not any(map(processes.lives, pids)), 5, f"{self.name}: its ranks {pids} outlive it")
        self._again(event, ["was killed", "the engine failed, stopping"])

    def terminate(self, event):
        self._terminate()
        self._again(event)

    def _terminate(self):
        code = self.server.end(signal.SIGTERM, END)
        if code != 0:
            raise AssertionError(f"{self.name} ended with {code} after SIGTERM: {self.server.log}")

    def terminate_for_good(self):
        self._terminate()
        self._note_injected()
        self.check_log()

    def _again(self, event, allowed=()):
        """After its end: looks at what it left and restarts it."""
        self._note_injected()
        self.check_log(allowed)
        time.sleep(event.seconds)
        was_faulty = self.away
        self.away = None
        self.start()
        if was_faulty:
            was_faulty.ended = time.monotonic()

    def stop(self, event):
        pids = self.pids()
        pid = pids[event.which % len(pids)]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: processes.state(pid) == "T", 2, f"{self.name}: {pid} is not stopped")
            time.sleep(event.seconds)
            stopped = processes.state(pid)
        finally:
            os.kill(pid, signal.SIGCONT)
        if stopped != "T":
            raise AssertionError(f"{self.name}: {pid} did not stay stopped: {stopped}")
        wait_until(lambda: processes.state(pid) != "T", 2, f"{self.name}: {pid} does not go on")

    def restart_faulty(self, event):
        """Its transfers will break: counted when its log says that they have."""
        self._terminate()
        self._note_injected()
        self.check_log()
        if "corrupt" in event.fault:
            self.run.corrupted = True
        if self.away is None:
            self.away = self.run.disturbances.begin(self.name, event.kind, time.monotonic())
        self.start(event.fault)
        until = time.monotonic() + REACH
        word = f"injected fault: {_WORD[event.kind.split()[1]]}"
        while time.monotonic() < until and word not in self.server.text():
            time.sleep(0.05)

    def _note_injected(self):
        """Which faults of the transfer there were; the first of the plan gives the event its name."""
        if not self.fault:
            return
        done = re.findall(r"injected fault: (\w+) KV piece", self.server.text())
        for word in done:
            self.run.count("injected", word)
        kind = self.fault.split("=")[0]
        effect = _WORD[kind] in done
        self.run.count(self.role, f"fault {kind}" if effect else f"fault {kind}, not reached")
        self.fault = ""

    def carry_out(self, event):
        """The event, and that it is over."""
        self.check_alive()
        act = {"kill": self.kill, "kill rank": self.kill_rank, "terminate": self.terminate, "heal": self.terminate,
               "short stop": self.stop, "long stop": self.stop}.get(event.kind, self.restart_faulty)
        harmless = event.kind == "short stop"
        disturbance = None if harmless else self.run.disturbances.begin(self.name, event.kind.replace("fault", "restart"),
                                                                        time.monotonic())
        try:
            act(event)
        finally:
            if disturbance:
                disturbance.ended = time.monotonic()
        self.check_alive()
        if act != self.restart_faulty:  # those are counted when they have happened
            self.run.count(self.role, event.kind)
