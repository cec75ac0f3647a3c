"""deploy/up, status and down with the tiny model: two clusters side by side, failures, and nothing left behind."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import etcd
from cluster import BUILD, ROOT, tiny_model, wait_until


def run(script, *arguments, **env):
    return subprocess.run([ROOT / "deploy" / script, *map(str, arguments)], capture_output=True, text=True, timeout=150,
                          stdin=subprocess.DEVNULL, check=False, env={**os.environ, "SLUICE_BUILD": str(BUILD), **env})


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class DeployTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = tiny_model(self.folder)

    def up(self, name, *arguments, **env):
        state_dir = self.folder / name
        self.addCleanup(lambda: run("down", "--state-dir", state_dir))
        if not {"--prefill", "--decode", "--both"} & set(map(str, arguments)):
            arguments = ("--both", 1, *arguments)
        return run("up", "--no-setup", "--model", self.model, "--grpc-port", 0, "--threads", 1, "--state-dir",
                   state_dir, *arguments, **env)

    def pids(self, name):
        return [int(p.read_text(encoding="utf-8").split()[0]) for p in (self.folder / name / "run").glob("*.pid")]

    def down(self, name):
        pids = self.pids(name)
        done = run("down", "--state-dir", self.folder / name)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        left = [p for p in pathlib.Path("/dev/shm").glob("sluice*") if any(str(pid) in p.name for pid in pids)]
        self.assertEqual(left, [])
        self.assertEqual(list((self.folder / name / "run").glob("*.pid")), [])
        return done

    def fake_build(self, worker_script):
        """A build folder whose worker is a script."""
        build = self.folder / "fake-build"
        build.mkdir()
        for name in ("sluice", "sluice_router"):
            (build / name).symlink_to(BUILD / name)
        (build / "sluice_decode").write_text("#!/bin/sh\n" + worker_script, encoding="utf-8")
        (build / "sluice_decode").chmod(0o755)
        return build

    def test_two_clusters_side_by_side(self):
        first, second = self.up("first", "--both", 1), self.up("second", "--both", 2)
        for done in (first, second):
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.stdout, r"start done in \d+\.\d s")
            self.assertRegex(done.stdout, r"Up in \d+\.\d s")
        for name, count in (("first", 1), ("second", 2)):
            status = run("status", "--json", "--state-dir", self.folder / name)
            self.assertEqual(status.returncode, 0, status)
            workers = json.loads(status.stdout)["workers"]
            self.assertEqual([w["state"] for w in workers], ["active"] * count)
            self.assertLessEqual({w["pid"] for w in workers}, set(self.pids(name)))
        self.assertIn("both", run("status", "--state-dir", self.folder / "first").stdout)

        again = self.up("first")
        self.assertEqual(again.returncode, 1)
        self.assertIn("already up", again.stderr)

        address = re.search(r"Router at (\S+),", second.stdout).group(1)
        self.down("first")
        self.assertIn("nothing runs", run("status", "--state-dir", self.folder / "first").stderr)
        ask = subprocess.run([BUILD / "sluice", "generate", "--router", address, "hello"], capture_output=True,
                             timeout=60, check=False)
        self.assertEqual(ask.returncode, 0, ask)
        self.assertIn("Stopped 3", self.down("second").stdout)
        self.assertIn("Nothing runs", self.down("second").stdout)

        self.assertEqual(self.up("first").returncode, 0)  # and up again
        self.down("first")

    def test_a_file_for_the_whole_cluster(self):
        file = self.folder / "cluster.yaml"
        file.write_text("router:\n  queue-limit: 7\nworkers:\n  kv-blocks: 40\n  threads: 1\n", encoding="utf-8")
        done = self.up("filed", "--both", 1, "--config", file)
        self.assertEqual(done.returncode, 0, done)
        scaled = run("scale", "--state-dir", self.folder / "filed", "both=2")
        self.assertEqual(scaled.returncode, 0, scaled)
        workers = json.loads(run("status", "--json", "--state-dir", self.folder / "filed").stdout)["workers"]
        self.assertEqual([w["blocks_total"] for w in workers], [40, 40])
        self.down("filed")
        file.write_text("router:\n  queue-limits: 7\n", encoding="utf-8")
        done = self.up("filed", "--both", 1, "--config", file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cluster.yaml:2: queue-limits: sluice_router has no such option; did you mean queue-limit?", done.stderr)
        self.assertEqual(self.pids("filed"), [])

    def test_worker_that_dies_while_starting(self):
        build = self.fake_build("echo 'first line'; echo 'sluice_decode: no luck today' >&2; exit 3\n")
        done = self.up("dying", SLUICE_BUILD=str(build))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.strip(), r"^deploy/up: both-0 ended while starting: sluice_decode: no luck today; "
                                              r"the log is \S+/logs/both-0.log$")
        self.assertEqual(run("status", "--state-dir", self.folder / "dying").returncode, 1)
        self.assertEqual(self.pids("dying"), [])

    def test_foreign_model(self):
        self.model.write_bytes(b"no model at all" * 1000)
        done = self.up("foreign")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("tiny.gguf", done.stderr)
        self.model.unlink()
        done = self.up("foreign")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tiny.gguf", done.stderr)

    def workers(self, name):
        """Live workers as the router sees them: their roles, sorted."""
        done = run("status", "--json", "--state-dir", self.folder / name)
        self.assertEqual(done.returncode, 0, done)
        return sorted(w["role"] for w in json.loads(done.stdout)["workers"] if w["state"] == "active")

    def wait_for_workers(self, name, roles):
        deadline = time.monotonic() + 30
        while self.workers(name) != roles:
            self.assertLess(time.monotonic(), deadline, self.workers(name))
            time.sleep(0.1)

    def test_prefill_and_decode_pools_scale(self):
        self.assertEqual(self.up("pools", "--prefill", 1, "--decode", 1).returncode, 0)
        self.wait_for_workers("pools", ["decode", "prefill"])
        state = ("--state-dir", self.folder / "pools")
        done = run("scale", *state, "prefill=2", "decode=3")
        self.assertEqual(done.returncode, 0, done)
        self.wait_for_workers("pools", ["decode"] * 3 + ["prefill"] * 2)
        done = run("scale", *state, "decode=1")
        self.assertEqual(done.returncode, 0, done)
        self.wait_for_workers("pools", ["decode"] + ["prefill"] * 2)
        address = (self.folder / "pools" / "run" / "router.addr").read_text(encoding="utf-8").strip()
        for i in range(6):
            asked = subprocess.run([BUILD / "sluice", "generate", "--router", address, "--max-tokens", "5", f"number {i}"],
                                   capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(asked.returncode, 0, asked)
        for bad in ("decode", "decode=x", "router=2"):
            self.assertEqual(run("scale", *state, bad).returncode, 2)
        self.assertEqual(run("scale", *state).returncode, 2)
        self.down("pools")

    def test_several_routers(self):
        done = self.up("several", "--prefill", 1, "--decode", 1, "--routers", 2)
        self.assertEqual(done.returncode, 0, done)
        addresses = [(self.folder / "several/run" / f"{name}.addr").read_text(encoding="utf-8").strip()
                     for name in ("router", "router-1")]
        self.assertIn(f"The other routers: {addresses[1]}", done.stdout)
        self.assertEqual(len(self.pids("several")), 4)
        for address in addresses:
            ask = subprocess.run([BUILD / "sluice", "generate", "--router", address, "--max-tokens", "5", "hello"],
                                 capture_output=True, timeout=60, check=False)
            self.assertEqual(ask.returncode, 0, ask)
        state = ("--state-dir", self.folder / "several")
        first = int((self.folder / "several/run/router.pid").read_text(encoding="utf-8").split()[0])
        os.kill(first, signal.SIGKILL)  # the second goes on, also for status and scale
        self.wait_for_workers("several", ["decode", "prefill"])
        done = run("scale", *state, "decode=2")
        self.assertEqual(done.returncode, 0, done)
        self.wait_for_workers("several", ["decode", "decode", "prefill"])
        self.assertIn("Stopped 4", self.down("several").stdout)
        self.assertEqual(list((self.folder / "several/run").glob("router*.addr")), [])

    @unittest.skipIf(etcd.missing(), etcd.missing())
    def test_through_a_registry(self):
        store = etcd.Etcd(self.folder)
        self.addCleanup(store.kill)
        store.start()
        done = self.up("found", "--both", 1, "--routers", 2, "--registry", store.registry)
        self.assertEqual(done.returncode, 0, done)
        logs = self.folder / "found/logs"
        for name in ("router", "router-1"):
            wait_until(lambda: "workers find this router there" in (logs / f"{name}.log").read_text(encoding="utf-8"),
                       10, name)
        wait_until(lambda: "following /test/routers/" in (logs / "both-0.log").read_text(encoding="utf-8"), 10, "both-0")
        self.down("found")

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = self.up("port", "--grpc-port", port)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(f"port {port} is in use", done.stderr)
        self.assertIn("--grpc-port", done.stderr)

    def test_flags(self):
        for arguments, name in ((["--prefill", 1], "--both"), (["--decode", 1], "--both"), (["--tp", 0], "--tp"),
                                (["--both", 0], "--both"), (["--routers", 0], "--routers"), (["--registry", "zoo"], "--registry"),
                                (["--both", "x"], "--both"), (["--grpc-port", 70000], "port"),
                                (["--nonsense"], "--nonsense"), (["--model"], "--model")):
            with self.subTest(arguments):
                done = self.up("flags", *arguments)
                self.assertEqual(done.returncode, 2, done)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(name, done.stderr)
        for script in ("up", "down", "scale", "status", "setup", "test"):
            done = run(script, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"deploy/{script}", done.stdout)

    def test_down_spares_a_reused_pid(self):
        self.assertEqual(self.up("reused").returncode, 0)
        with subprocess.Popen(["sleep", "60"]) as bystander:
            try:
                (self.folder / "reused/run/both-7.pid").write_text(f"{bystander.pid} 1\n", encoding="utf-8")
                done = run("down", "--state-dir", self.folder / "reused")
                self.assertEqual(done.returncode, 0, done)
                self.assertIsNone(bystander.poll())
            finally:
                bystander.kill()

    def test_down_kills_what_does_not_end(self):
        self.assertEqual(self.up("stuck").returncode, 0)
        router = int((self.folder / "stuck/run/router.pid").read_text(encoding="utf-8").split()[0])
        os.kill(router, signal.SIGSTOP)  # a stopped process does not act on SIGTERM
        done = self.down("stuck")
        self.assertIn("killing", done.stdout)


if __name__ == "__main__":
    unittest.main()
