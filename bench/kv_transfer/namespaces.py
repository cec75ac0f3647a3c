"""A second network namespace, joined to this one by a pair of virtual Ethernet devices."""
import os
import subprocess


class Unable(Exception):
    """Namespaces can't be made here; says why."""


class Namespace:
    """with Namespace() as there: `here` and `there.address` reach each other; `there.prefix` runs a command in it.

    It is removed at the end, however that comes; only SIGKILL leaves it behind, and the next one clears that away.
    """

    NAME = "sluice-kv"

    def __init__(self):
        self.name = f"{self.NAME}-{os.getpid()}"
        net = f"198.18.{os.getpid() // 64 % 256}.{os.getpid() % 64 * 4}"  # kept free for benchmarks (RFC 2544)
        head, _, last = net.rpartition(".")
        self.here, self.address = f"{head}.{int(last) + 1}", f"{head}.{int(last) + 2}"
        self.device = f"skv{os.getpid() % 10**6}"

    @property
    def prefix(self):
        return ["ip", "netns", "exec", self.name]

    def __enter__(self):
        clear_leftovers()
        try:
            self._ip("netns", "add", self.name)
            self._ip("link", "add", self.device, "type", "veth", "peer", "name", "kv0", "netns", self.name)
            self._ip("addr", "add", f"{self.here}/30", "dev", self.device)
            self._ip("link", "set", self.device, "up")
            self._ip("-n", self.name, "addr", "add", f"{self.address}/30", "dev", "kv0")
            self._ip("-n", self.name, "link", "set", "kv0", "up")
            self._ip("-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # The devices go with the namespace, but only when its last process has; so they are removed first.
        for command in (["ip", "link", "del", self.device], ["ip", "netns", "del", self.name]):
            try:
                subprocess.run(command, capture_output=True, check=False)
            except OSError:
                pass

    @staticmethod
    def _ip(*arguments):
        try:
            subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
        except OSError as error:
            raise Unable(f"no network namespaces here: ip: {error.strerror}") from error
        except subprocess.CalledProcessError as error:
            raise Unable(f"no network namespaces here: ip {' '.join(arguments)}: {error.stderr.strip()}") from error


def clear_leftovers():
    """Of runs that were killed."""
    try:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return
    for line in listed.splitlines():
        name = line.split()[0] if line.split() else ""
        pid = name.removeprefix(f"{Namespace.NAME}-")
        if name.startswith(f"{Namespace.NAME}-") and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
