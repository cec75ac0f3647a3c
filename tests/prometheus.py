"""A Prometheus of its own for a test: one process on a free port, with its data in the test's folder."""
import json
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from etcd import free_port


def missing():
    """Why there can be none; empty where there can."""
    has = shutil.which("prometheus") and shutil.which("promtool")
    return "" if has else "there is no prometheus here; Debian's package prometheus has it (deploy/test installs it)"


class Prometheus:
    """with Prometheus(folder, config): its port is in `port`."""

    def __init__(self, folder, config):
        self.folder, self.config, self.port = pathlib.Path(folder), config, free_port()

    def __enter__(self):
        with open(self.folder / "prometheus.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "prometheus", "--config.file", self.config, "--storage.tsdb.path",
                 self.folder / "prometheus-data", "--web.listen-address", f"127.0.0.1:{self.port}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def get(self, path, **parameters):
        """The data of an answer of its API; None while it does not answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                return None
            raise AssertionError(f"{url}: {error.read().decode()}") from None
        except OSError:
            return None

    def query(self, expression):
        """{labels without the name: value}"""
        data = self.get("query", query=expression)
        return {} if data is None else {tuple(sorted((k, v) for k, v in r["metric"].items() if k != "__name__")): float(r["value"][1])
                                        for r in data["result"]}
