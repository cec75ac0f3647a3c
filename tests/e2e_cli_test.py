"""The command line with the real model: conversations through a pty and a pipe, `top`, `models`, the template as the default.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from cluster import BUILD, Cluster, real_model, tiny_model, wait_until

QUESTION = "What is the capital of France?"


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, *command, columns=200):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
            os.execv(command[0], [str(c) for c in command])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.text = ""
        self.code = None

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                return False
        return True

    def expect(self, pattern, timeout=60):
        """Waits until it is in what came since the last one; returns what came before it."""
        deadline = time.monotonic() + timeout
        while True:
            match = re.search(pattern, self.text, re.S)
            if match:
                before, self.text = self.text[:match.start()], self.text[match.end():]
                return before
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern!r} at the end of {self.text[-2000:]!r}")
            self.read(0.2)

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait(self, timeout=30):
        def ended():
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            return pid
        wait_until(ended, timeout, lambda: f"it still runs: {self.text!r}")
        return self.code

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class CommandLineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=0, prefill=1, decode=1, model=real_model()).__enter__()
        cls.addClassCleanup(cls.cluster.close)

    def at_terminal(self, *arguments):
        terminal = Terminal(BUILD / "sluice", arguments[0], "--router", self.cluster.address, *arguments[1:])
        self.addCleanup(terminal.close)
        return terminal

    def test_the_template_is_the_default(self):
        def answer(*flags):
            run = self.cluster.cli("generate", "--json", "--max-tokens", "24", *flags, QUESTION)
            self.assertEqual(run.returncode, 0, run.stderr)
            return json.loads(run.stdout)
        talk, raw = answer(), answer("--raw")
        self.assertIn("Paris", talk["text"])
        self.assertGreater(len(talk["prompt_token_ids"]), len(raw["prompt_token_ids"]) + 5)
        self.assertEqual(raw["token_ids"], self.cluster.client.generate(QUESTION, max_tokens=24).token_ids)

    def test_a_model_without_a_template_continues_the_text(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder)
            key = b"tokenizer.chat_template"
            data = model.read_bytes()
            self.assertEqual(data.count(key), 1)
            model.write_bytes(data.replace(key, b"tokenizer.something_one"))  # of the same length
            with Cluster(workers=1, model=model) as cluster:
                want = cluster.client.generate("hello", max_tokens=8, ignore_eos=True).token_ids
                run = cluster.cli("generate", "--max-tokens", "8", "--ignore-eos", "--json", "hello")
                self.assertEqual(json.loads(run.stdout)["token_ids"], want, run.stderr)
                run = cluster.cli("chat", input="hello\n")
                self.assertEqual(run.returncode, 2)
                self.assertIn("the model has no chat template", run.stderr)

    def test_chat_through_a_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "talk.json"
            lines = f"My name is Ada.\\\nRemember it.\nWhat is my name?\n/save {saved}\n/reset\n/system Be brief.\n//a\n"
            run = self.cluster.cli("chat", "--max-tokens", "24", "--json", input=lines)
            self.assertEqual(run.returncode, 0, run.stderr)
            answers = [json.loads(line) for line in run.stdout.splitlines()]
            talk = json.loads(saved.read_text(encoding="utf-8"))["messages"]
        self.assertEqual(len(answers), 3)
        self.assertEqual(talk, [{"role": "user", "content": "My name is Ada.\nRemember it."},
                                {"role": "assistant", "content": answers[0]["text"]},
                                {"role": "user", "content": "What is my name?"},
                                {"role": "assistant", "content": answers[1]["text"]}])
        # The second prompt begins as the first one did, with its answer in it; the third forgot both.
        self.assertGreater(answers[1]["usage"]["cached_tokens"], 0)
        self.assertGreater(answers[1]["usage"]["prompt_tokens"],
                           answers[0]["usage"]["prompt_tokens"] + answers[0]["usage"]["completion_tokens"] - 2)
        self.assertLess(answers[2]["usage"]["prompt_tokens"], answers[1]["usage"]["prompt_tokens"])
        # Streamed text is the same.
        plain = self.cluster.cli("chat", "--max-tokens", "24", input="My name is Ada.\\\nRemember it.\n")
        self.assertEqual(plain.stdout, answers[0]["text"] + "\n")

    def test_a_pipe_hears_of_errors(self):
        run = self.cluster.cli("chat", "--temperature", "-1", input="hello\nthere\n")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr.count("temperature"), 1, "the first error ends it")
        run = self.cluster.cli("chat", input="/sing\n")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("/sing", run.stderr)
        self.assertEqual(self.cluster.cli("chat", input="").returncode, 0)

    def test_chat_at_a_terminal(self):
        chat = self.at_terminal("chat", "--max-tokens", "24")
        chat.expect("/help lists more.*> ")
        chat.send(QUESTION + "\n")
        chat.expect("Paris.*\n> ")
        # Editing: a line that was typed before comes back, and a letter goes away.
        chat.send("\x1b[A")
        chat.expect("capital of France")
        chat.send("\x15/helq\x7fp\n")
        chat.expect("/reset .*> ")
        chat.send("half a line\x03")
        chat.expect(r"\^C.*> ")
        chat.send("/nonsense\n")
        chat.expect("there is no /nonsense.*> ")
        chat.send("é\n")
        chat.expect("\n.*> ")
        chat.send("/quit\n")
        self.assertEqual(chat.wait(), 0)
        other = self.at_terminal("chat")
        other.expect("> ")
        other.send("\x04")
        self.assertEqual(other.wait(), 0)

    def test_ctrl_c_stops_an_answer_and_not_the_session(self):
        chat = self.at_terminal("chat", "--ignore-eos", "--max-tokens", "4000")
        chat.expect("> ")
        chat.send("Count from one to a thousand.\n")
        chat.expect("thousand.*\n.*[a-zA-Z0-9]{2}")
        busy = self.cluster.blocks_free()
        chat.send("\x03")
        chat.expect("\n> ", timeout=5)
        wait_until(lambda: self.cluster.blocks_free() > busy, 5, "blocks come back")
        chat.send("/quit\n")
        self.assertEqual(chat.wait(), 0)

    def test_models(self):
        out = json.loads(self.cluster.cli("models", "--json").stdout)["models"]
        state = self.cluster.client.state()
        self.assertEqual([(m["name"], m["context_length"]) for m in out], [(state.model, state.context_length)])
        self.assertEqual(out[0]["workers"], {"prefill": 1, "decode": 1, "both": 0})
        self.assertIn(state.workers[0].numerics, self.cluster.cli("models").stdout)

    def test_top(self):
        with subprocess.Popen([BUILD / "sluice", "bench", "--router", self.cluster.address, "--rate", "20", "--requests", "60",
                               "--input-tokens", "16", "--output-tokens", "16", "--quiet"], stdout=subprocess.DEVNULL) as load:
            time.sleep(0.5)
            out = json.loads(self.cluster.cli("top", "--once", "--json", "--interval", "1").stdout)
            load.wait(60)
        self.assertGreater(out["pools"]["decode"]["tokens_per_s"], 0)
        self.assertEqual({w["role"] for w in out["workers"]}, {"prefill", "decode"})
        text = self.cluster.cli("top", "--once", "--interval", "0.2").stdout
        self.assertNotIn("\x1b", text)
        for word in ("POOL", "prefill", "decode", "TOKENS/S", self.cluster.address):
            self.assertIn(word, text)
        top = self.at_terminal("top", "--interval", "0.2")
        top.expect(r"\x1b\[\?1049h")
        top.expect("POOL.*ROLE")
        top.expect(r"\x1b\[H")  # drawn over, not cleared
        top.send("q")
        self.assertEqual(top.wait(), 0)
        self.assertIn("\x1b[?1049l", top.text)

    def test_top_waits_for_a_router_that_went_away(self):
        with Cluster(workers=1) as cluster:
            top = Terminal(BUILD / "sluice", "top", "--router", cluster.address, "--interval", "0.2")
            self.addCleanup(top.close)
            top.expect("POOL.*both")
            cluster.router.end(signal.SIGKILL)
            top.expect("asked again for")
            cluster.start_router(port=cluster.port)
            top.expect(r"\x1b\[H.{0,12}router .*both +1 +1 ")
            top.send("\x03")
            self.assertEqual(top.wait(), 0)
            run = cluster.cli("top", "--once", "--interval", "0.2")
            self.assertEqual(run.returncode, 0, run.stderr)
        run = subprocess.run([BUILD / "sluice", "top", "--once", "--router", "127.0.0.1:1"], capture_output=True, text=True,
                             check=False, timeout=30)
        self.assertEqual(run.returncode, 1)
        self.assertIn("no router answers", run.stderr)

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("a-secret-of-this-test\n")
            keys.flush()
            cluster = Cluster(workers=0, router_flags=["--api-keys", keys.name])
            self.addCleanup(cluster.close)
            cluster.api_key = "a-secret-of-this-test"
            cluster.start_router()
            address, http = (cluster.router.fields[n] for n in ("grpc", "http"))
            for key, words in (("wrong", "UNAUTHENTICATED"), (cluster.api_key, None)):
                environment = {**os.environ, "SLUICE_API_KEY": key}
                run = subprocess.run([BUILD / "sluice", "models", "--router", address], capture_output=True, text=True,
                                     env=environment, check=False, timeout=30)
                self.assertEqual(run.returncode, 1 if words else 0, run.stderr)
                self.assertIn(words or "", run.stderr)
                run = subprocess.run([BUILD / "sluice", "bench", "--api", "completions", "--http", http, "--requests", "1"],
                                     capture_output=True, text=True, env=environment, check=False, timeout=30)
                self.assertIn("401" if words else "no worker", run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
