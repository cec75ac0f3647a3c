"""docs/quick-start.md works as it stands there: its commands are run in their order against a cluster that they start and stop.

Of a command only ports and the folder of the state are replaced, and `deploy/up` finds everything built.
"""
import os
import re
import socket
import subprocess
import tempfile
import unittest

from cluster import BUILD, ROOT, real_model

PAGE = (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class QuickStartTest(unittest.TestCase):
    def test_every_command_in_order(self):
        blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
        self.assertGreater(len(blocks), 6)
        self.assertEqual(blocks[0], "deploy/up\n")
        self.assertEqual(blocks[-1], "deploy/down\n")
        http, grpc = free_port(), free_port()
        with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
            environment = {**os.environ, "SLUICE_BUILD": str(BUILD), "XDG_STATE_HOME": folder}

            def run(text):
                text = text.replace("deploy/up\n", f"deploy/up --no-setup --model {real_model()} --port {http} --grpc-port {grpc}\n")
                text = re.sub(r"build/sluice (\w+)", rf"{BUILD}/sluice \1 --router localhost:{grpc}", text)
                text = text.replace("localhost:8000", f"localhost:{http}")
                done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=ROOT, env=environment, timeout=240,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout}\n{done.stderr}")
                return done.stdout

            self.addCleanup(subprocess.run, [ROOT / "deploy/down"], env=environment, capture_output=True, check=False)
            outputs = [run(block) for block in blocks]
        self.assertIn("Up in", outputs[0])
        said = "\n".join(outputs)
        self.assertGreaterEqual(said.count("Paris"), 2, said)
        self.assertIn("TTFT", said)
        self.assertIn("sluice_kv_blocks", said)
        self.assertIn("Stopped", outputs[-1])


if __name__ == "__main__":
    unittest.main()
