"""What docs/api.md shows works as it stands there: every example is run against a live cluster, every path answers.

Of an example only the addresses are replaced.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from cluster import BUILD, ROOT, Cluster, real_model

API = (ROOT / "docs/api.md").read_text(encoding="utf-8")


BODIES = {"/v1/completions": b'{"prompt": "a", "max_tokens": 1}',
          "/v1/chat/completions": b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}',
          "/tokenize": b'{"prompt": "a"}', "/detokenize": b'{"tokens": [1]}'}


def examples(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", API, re.M | re.S)


class DocsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=0, prefill=1, decode=1, model=real_model())
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.check_alive()
        cls.http = cls.cluster.router.fields["http"]
        cls.answer = cls.cluster.client.generate("The capital of France is", max_tokens=32).text

    def run_example(self, text, *command):
        text = text.replace("localhost:50051", self.cluster.address).replace("localhost:8000", self.http)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "example"
            path.write_text(text, encoding="utf-8")
            run = subprocess.run([*command, path], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, f"{text}\n{run.stdout}\n{run.stderr}")
        return run.stdout

    def test_python_examples(self):
        outputs = [self.run_example(text, sys.executable) for text in examples("python")]
        self.assertEqual(len(outputs), 3)
        self.assertEqual(outputs[0], self.answer)  # gRPC, greedy by default
        self.assertIn("Paris", outputs[1])         # the openai package: a conversation
        self.assertTrue(outputs[2].strip())        # a text; its default is sampling

    def test_shell_examples(self):
        outputs = [self.run_example(text, "bash", "-e") for text in examples("sh")]
        self.assertEqual(len(outputs), 1)
        events = re.findall(r"^data: (.*)$", outputs[0], re.M)
        self.assertEqual(events.pop(), "[DONE]")
        self.assertEqual("".join(json.loads(event)["choices"][0]["text"] for event in events), self.answer)

    def get(self, path, body=None):
        request = urllib.request.Request(f"http://{self.http}{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_every_path_of_the_table_answers(self):
        paths = re.findall(r"^\| `(GET|POST) (/\S+)` \|", API, re.M)
        self.assertIn(("POST", "/v1/completions"), paths)
        for method, path in paths:
            body = BODIES[path] if method == "POST" else None
            self.assertEqual(self.get(path, body), 200, path)

    def refused(self, path, field, value):
        """The parameter that the error names; None: the value passes."""
        body = {**json.loads(BODIES[path]), field: value}
        request = urllib.request.Request(f"http://{self.http}{path}", json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60):
                return None
        except urllib.error.HTTPError as error:
            self.assertIn(error.code, (400, 404), field)
            return json.load(error)["error"]["param"]

    def test_every_field_of_the_tables_is_known(self):
        """A field of the documentation with values that it does not take is refused by name."""
        both, chat, completion = re.split(r"^Of `/v1/[a-z/]+`:$", API.split("\n### Fields\n")[2].split("\n### ")[0], flags=re.M)
        for table, paths in ((both, BODIES), (chat, ["/v1/chat/completions"]), (completion, ["/v1/completions"])):
            rows = re.findall(r"^\| (`[^|]*`) \|", table, re.M)
            fields = [name for row in rows for name in re.findall(r"`(\w+)[.`]", row.split(" | ")[0])]
            self.assertGreater(len(fields), 5)
            for field in fields:
                for path in paths:
                    if "completions" in path:
                        named = [self.refused(path, field, value) for value in ({"no": {}}, [{"no": ["such", "value"]}], "?")]
                        self.assertIn(field, [re.split(r"[.\[]", name or "")[0] for name in named], f"{path} {named}")

    def test_output_that_cannot_be_written(self):
        for flags in ([], ["--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run([BUILD / "sluice", "generate", "--raw", "--router", self.cluster.address, *flags,
                                      "--max-tokens", "8", "--ignore-eos", "Count:"], stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertEqual(run.stderr, "sluice: cannot write to standard output: No space left on device\n")


if __name__ == "__main__":
    unittest.main()
