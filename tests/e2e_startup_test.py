"""Servers that cannot start: one line that names the thing, and an exit code above 0."""
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

from cluster import BUILD, Cluster, tiny_model

INFO = re.compile(r"I\d{8} ")  # a log line of what went well before


class StartupTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = tiny_model(cls.folder)

    def assert_one_line(self, arguments, *names):
        run = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=60, check=False,
                             stdin=subprocess.DEVNULL)
        self.assertGreater(run.returncode, 0, run)  # an exit, not a signal
        self.assertEqual(run.stdout, "")
        lines = [line for line in run.stderr.splitlines() if not INFO.match(line)]
        self.assertEqual(len(lines), 1, run.stderr)
        for name in names:
            self.assertIn(str(name), lines[0])

    def servers(self, model):
        yield [BUILD / "sluice_router", "--grpc-port", 0, "--model", model]
        yield [BUILD / "sluice_decode", "--role", "both", "--port", 0, "--router", "127.0.0.1:1", "--model", model]

    def test_model_files(self):
        good = self.model.read_bytes()
        files = {"missing.gguf": None, "empty.gguf": b"", "truncated.gguf": good[:len(good) * 2 // 3],
                 "header.gguf": good[:100], "foreign.gguf": b"#!/bin/sh\necho no model\n" * 100,
                 "zip.gguf": b"PK\x03\x04" + bytes(5000)}
        for name, data in files.items():
            path = self.folder / name
            if data is not None:
                path.write_bytes(data)
            for arguments in self.servers(path):
                with self.subTest(name, server=arguments[0].name):
                    self.assert_one_line(arguments, path)
        for arguments in self.servers(self.folder):
            with self.subTest("a folder", server=arguments[0].name):
                self.assert_one_line(arguments, self.folder)

    def test_port_in_use(self):
        with Cluster(model=self.model) as cluster:
            port = cluster.port
            self.assert_one_line([BUILD / "sluice_router", "--model", self.model, "--grpc-port", port], port)
            port = cluster.workers[0].fields["port"]
            self.assert_one_line([BUILD / "sluice_decode", "--role", "both", "--router", cluster.address, "--model",
                                  self.model, "--port", port], port)
            cluster.check_alive()
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assert_one_line([BUILD / "sluice_router", "--model", self.model, "--grpc-port", port], port)

    def test_flags(self):
        self.assert_one_line([BUILD / "sluice_decode", "--role", "both", "--router", "127.0.0.1:1", "--model",
                              self.model, "--compute", "nonsense"], "nonsense")
        router = [BUILD / "sluice_router", "--model", self.model, "--grpc-port", 0, "--registry"]
        self.assert_one_line([*router, "zoo://a:1"], "--registry", "zoo://a:1")
        self.assert_one_line([*router, "etcd://127.0.0.1:1", "--host", "0.0.0.0"], "--advertise")


if __name__ == "__main__":
    unittest.main()
