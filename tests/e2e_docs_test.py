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
        self.assertEqual(len(outputs), 2)
        self.assertEqual(outputs[0], self.answer)  # gRPC, greedy by default
        self.assertTrue(outputs[1].strip())        # the openai package; its default is sampling

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
            body = b'{"prompt": "a", "max_tokens": 1}' if method == "POST" else None
            self.assertEqual(self.get(path, body), 200, path)

    def test_every_field_of_the_table_is_known(self):
        """A field of the documentation with a value that no field takes: known ones are refused by name."""
        table = API.split("### Fields of /v1/completions")[1].split("###")[0]
        rows = re.findall(r"^\| (`[^|]*`) \|", table, re.M)
        fields = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
        self.assertGreater(len(fields), 15)
        for field in fields:
            body = {"prompt": "a", "max_tokens": 1, field: {"no": ["such", "value"]}}
            request = urllib.request.Request(f"http://{self.http}/v1/completions", json.dumps(body).encode())
            with self.assertRaises(urllib.error.HTTPError, msg=field) as raised:
                urllib.request.urlopen(request, timeout=60)
            error = json.loads(raised.exception.read())["error"]
            self.assertEqual((raised.exception.code, error["param"]), (400, field), error)

    def test_output_that_cannot_be_written(self):
        for flags in ([], ["--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run([BUILD / "sluice", "generate", "--router", self.cluster.address, *flags,
                                      "--max-tokens", "8", "--ignore-eos", "Count:"], stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertEqual(run.stderr, "sluice: cannot write to standard output: No space left on device\n")


if __name__ == "__main__":
    unittest.main()
