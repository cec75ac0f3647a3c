"""tests/gpu/check, tried on the test runtime: it sees what is right, says what is wrong, and ends without a GPU."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from cluster import BUILD, ROOT, tiny_model

CHECK = ROOT / "tests/gpu/check"
PROMPTS = {"n": 6, "prompts": [{"name": "short", "ids_hf": [5, 12, 19, 26]},
                               {"name": "longer", "ids_hf": [9, 30, 22, 41, *range(100, 130)]}]}


@unittest.skipUnless((BUILD / "backend_cuda_host.so").exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class GpuCheckTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = tiny_model(folder.name)
        prompts = cls.folder / "prompts.json"
        prompts.write_text(json.dumps(PROMPTS), encoding="utf-8")
        # Of the CPU, in f32.
        done = subprocess.run([BUILD / "golden_answers", cls.model, prompts], capture_output=True, text=True, check=True)
        cls.answers = json.loads(done.stdout)

    def check(self, golden, *flags):
        path = self.folder / "golden.json"
        path.write_text(json.dumps(golden), encoding="utf-8")
        command = [CHECK, "--build", BUILD, "--model", self.model, "--golden", path, "--out", self.folder / "out.json"]
        return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=300, check=False)

    def results(self):
        return json.loads((self.folder / "out.json").read_text(encoding="utf-8"))

    def test_what_is_right_passes(self):
        done = self.check(self.answers, "--test-runtime")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        self.assertEqual(results["errors"], {})
        self.assertEqual(results["answers"]["wrong"], [])
        self.assertEqual(results["answers"]["prompts"], 2)
        self.assertGreater(results["answers"]["steps"], 6)
        self.assertTrue(all(test["passed"] > 0 for test in results["kernels"]))
        kernels = {result["kernel"] for result in results["speed of kernels"]}
        self.assertGreaterEqual(kernels, {"copy", "norm", "decode attention", "prefill attention", "KV gather"})
        self.assertEqual({row["graphs"] for row in results["speed of steps"]["decode"]}, {True, False})

    def test_a_wrong_answer_is_seen(self):
        wrong = json.loads(json.dumps(self.answers))
        token = wrong["prompts"][1]["output_ids"][0]
        wrong["prompts"][1]["output_ids"][0] = token + 1
        wrong["prompts"][1]["top5"][0] = [[token + 1, -0.1], [token + 2, -0.5]]
        done = self.check(wrong, "--test-runtime")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(f"longer: step 0 is token {token}, not {token + 1}", done.stdout)

    def test_without_a_gpu_it_says_so(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("this machine has a GPU")
        done = self.check(self.answers)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"check: .*(GPU|driver)")


if __name__ == "__main__":
    unittest.main()
