"""Configuration files of the servers: one file for a cluster, errors, what --print-config says, docs/configuration.md."""
import pathlib
import re
import subprocess
import tempfile
import unittest

import configuration_tables
from cluster import BUILD, Cluster

SERVERS = ("sluice_router", "sluice_prefill", "sluice_decode")
CLUSTER = """
common:
  lease-ms: 4000
router:
  max_moves: 3
workers:
  kv-blocks: 300
  prefix-cache: false
prefill:
  max-step-tokens: 96
decode:
  max-seqs: 5
"""


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60, check=False)


class ConfigTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "cluster.yaml"

    def printed(self, server, *flags):
        done = run(BUILD / server, *flags, "--print-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(re.findall(r"^([\w-]+): (.*)$", done.stdout, re.M)), done.stdout

    def test_one_file_describes_a_cluster(self):
        self.file.write_text(CLUSTER)
        router, _ = self.printed("sluice_router", "--config", self.file)
        self.assertEqual((router["lease-ms"], router["max-moves"]), ("4000", "3"))
        prefill, _ = self.printed("sluice_prefill", "--config", self.file)
        self.assertEqual((prefill["max-step-tokens"], prefill["kv-blocks"], prefill["max-seqs"]), ("96", "300", "64"))
        decode, _ = self.printed("sluice_decode", "--config", self.file, "--max-seqs", 7)
        self.assertEqual((decode["max-seqs"], decode["prefix-cache"], decode["max-step-tokens"]), ("7", "false", "128"))
        # And it is what they do.
        flags = ["--config", self.file]
        with Cluster(workers=0, prefill=1, decode=1, worker_flags=flags, router_flags=flags) as cluster:
            self.assertEqual({w.blocks_total for w in cluster.client.state().workers}, {300})
            self.assertEqual(len(cluster.client.generate("hello", max_tokens=4, ignore_eos=True).token_ids), 4)

    def test_what_is_printed_reads_back_to_the_same(self):
        for server in SERVERS:
            _, first = self.printed(server, "--lease-ms", 1234, "--model", "odd name: #1.gguf")
            self.file.write_text(first)
            values, second = self.printed(server, "--config", self.file)
            self.assertEqual(second, first)
            self.assertEqual(values["lease-ms"], "1234")

    def test_errors_are_one_line_with_file_line_and_key(self):
        for server, text, error in (
                ("sluice_router", "model: m\nmax-movess: 3\n", ":2: max-movess: sluice_router has no such option; did you mean max-moves?"),
                ("sluice_router", "common:\n  kv-blocks: 3\n", ":2: kv-blocks: sluice_router has no such option"),
                ("sluice_prefill", "model: m\nkv-bytes: lots\n", ":2: kv-bytes: "),
                ("sluice_decode", "model: m\nprefix-cache: 2\n", ":2: prefix-cache: true or false is needed, got 2"),
                ("sluice_decode", "model: m\nrole: prefill\n", ":2: role: "),
                ("sluice_decode", "model: m\nmodel: n\n", ":2: model: stands in line 1 already"),
                ("sluice_decode", "decoder:\n  model: m\n", ":1: decoder: no such section"),
                ("sluice_prefill", "model: [\n", ":2: not YAML: ")):
            self.file.write_text(text)
            done = run(BUILD / server, "--config", self.file)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{self.file}{error}", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for server in SERVERS:
            done = run(BUILD / server, "--config", "/nonexistent.yaml")
            self.assertEqual(done.returncode, 2)
            self.assertIn("/nonexistent.yaml", done.stderr)

    def test_the_document_has_every_option(self):
        text = configuration_tables.DOCUMENT.read_text(encoding="utf-8")
        self.assertEqual(text, configuration_tables.up_to_date(text), "run tests/configuration_tables.py --write")
        for server, section in zip(SERVERS, re.split(r"^## Options of ", text, flags=re.M)[1:]):
            named = set(re.findall(r"^\| `([\w-]+)` \|", section, re.M))
            listed = set(re.findall(r"^\s+(?:-\w,)?--([\w-]+)", run(BUILD / server, "--help").stdout, re.M))
            self.assertGreater(len(named), 20)
            self.assertEqual(listed - named, {"help", "version", "config", "print-config"} & listed, server)

    def test_the_documents_example_is_read(self):
        text = configuration_tables.DOCUMENT.read_text(encoding="utf-8")
        self.file.write_text(re.search(r"```yaml\n(.*?)```", text, re.S).group(1))
        router, _ = self.printed("sluice_router", "--config", self.file)
        self.assertEqual(router["tenant-weight"], "[search=2, batch=0.5]")
        decode, _ = self.printed("sluice_decode", "--config", self.file)
        self.assertEqual((decode["kv-bytes"], decode["drafts"]), (str(2 << 30), "0"))
        prefill, _ = self.printed("sluice_prefill", "--config", self.file)
        self.assertEqual(prefill["max-step-tokens"], "256")


if __name__ == "__main__":
    unittest.main()
