"""Every phase of a worker's and a request's life on a GPU x memory that is short, launches that fail, a device that has
failed for good, NCCL that fails or stalls, a peer that dies: on the test runtime (tests/host_cuda), which injects them.

The rows are in cuda_fault_cases.py. Owed in each: it took place (its line in a log), nothing hangs, the request ends with
one error that is right about who failed or with the right answer, all blocks are free, and the next request has the right bits.
"""
import contextlib
import os
import pathlib
import re
import shutil
import tempfile
import time
import unittest

import grpc

import cuda_fault_cases as cases
from cluster import Cluster, Server, BUILD, tiny_model, wait_until
from e2e_cuda_test import CUDA, GREEDY, PLUGIN, PROMPTS, environment, facts
from sluice_client import Background

CONTEXT = [*CUDA, "--max-context", "512", "--no-prefix-cache", "--no-profile"]  # every request has all phases, and none was before
FLAGS = [*CONTEXT, "--kv-blocks", "200"]
RANK_FLAGS = ["--tp", 2, "--rank-timeout-ms", 4000]
STAYS = ["--max-moves", 0]  # a request ends with its worker, so that what it is told can be looked at
DEVICES = "3"
HANG = 60  # seconds: nothing that is asked for takes as long, on a busy machine either
SAID = 20  # a log says it
FREE_WITHIN = 2
PROMPT = PROMPTS[2]  # two blocks and a part of one
ASKED = {
    "greedy": (PROMPT, {**GREEDY, "max_tokens": 6}),
    "sampled": (PROMPT, {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 4, "max_tokens": 6, "ignore_eos": True}),
    "choices": (PROMPT, {"n": 3, "seed": 9, "temperature": 1.0, "max_tokens": 6, "ignore_eos": True}),
    "forked": (PROMPT, {"n": 2, "seed": 9, "temperature": 1.0, "max_tokens": 6, "ignore_eos": True}),
}
CODES = {"ends": (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED),
         "dies": (grpc.StatusCode.UNAVAILABLE,),
         "recovers": (grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)}


@unittest.skipUnless(PLUGIN.exists(), "SKIPPED: the CUDA backend was not built (no nvcc)")
class CudaFaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = tiny_model(cls.folder)
        cls.plan = cls.folder / "faults"
        cls.enterClassContext(environment(HOST_CUDA_FAIL_FILE=str(cls.plan), HOST_CUDA_ON_ERROR="report",
                                          HOST_CUDA_DEVICES=DEVICES))
        with Cluster(model=cls.model, worker_flags=FLAGS) as one:
            cls.right = {name: facts(one.client.generate(prompt, **fields)) for name, (prompt, fields) in ASKED.items()}

    def arm(self, plan):
        self.plan.with_suffix(".new").write_text(plan, encoding="ascii")
        os.replace(self.plan.with_suffix(".new"), self.plan)

    def disarm(self):
        self.plan.unlink(missing_ok=True)

    def tearDown(self):
        self.disarm()

    def say(self, where, fault, outcome, began):
        print(f"  {where:10} {fault.phase:30} {fault.plan:62} {outcome}, {time.monotonic() - began:.1f} s", flush=True)

    # ---- workers that do not start ----

    def starts(self, where, faults, flags):
        for fault in faults:
            with self.subTest(where=where, phase=fault.phase, plan=fault.plan):
                began = time.monotonic()
                self.arm(fault.plan)
                log = self.folder / "failing.log"
                worker = Server([BUILD / "sluice_decode", "--role", "both", "--model", self.model, *CONTEXT, "--kv-blocks",
                                 fault.blocks, *flags], log)
                try:
                    code = worker.process.wait(HANG)
                finally:
                    worker.process.kill()
                    worker.process.wait()
                self.assertIn("host_cuda: on purpose", worker.text())
                self.assertEqual(code, {"ends": 1, "dies": -9}[fault.owed], worker.text())
                lines = [line for line in worker.text().splitlines() if line.startswith("sluice_decode: ")]
                if fault.owed == "ends":
                    self.assertTrue(lines, worker.text())
                    self.assertTrue(all(word in lines[-1] or word in worker.text() for word in fault.words), worker.text())
                self.say(where, fault, lines[-1] if lines else "killed", began)

    def test_start(self):
        self.starts("start", cases.STARTS, [])

    def test_start_of_ranks(self):
        self.starts("ranks", cases.RANKS_START, RANK_FLAGS)

    # ---- workers that serve ----

    def run_rows(self, where, faults, workers):
        """`workers`: (role, flags), of each that is started, the prefill worker first."""
        with contextlib.closing(Cluster(workers=0, model=self.model, worker_flags=FLAGS,
                                        router_flags=STAYS)) as cluster:
            cluster.__enter__()
            self.cluster, self.shape, self.serving = cluster, workers, {}
            self.start_missing()
            for fault in faults:
                with self.subTest(where=where, phase=fault.phase, plan=fault.plan):
                    began = time.monotonic()
                    try:
                        outcome = self.row(fault)
                    except BaseException:  # the next row begins afresh
                        self.disarm()
                        for worker in self.serving.values():
                            worker.process.kill()
                            worker.process.wait()
                        raise
                    self.say(where, fault, outcome, began)

    def start_missing(self):
        fresh = [i for i in range(len(self.shape)) if i not in self.serving or self.serving[i].process.poll() is not None]
        for i in fresh:
            role, flags = self.shape[i]
            self.serving[i] = self.cluster.start_worker(role=role, wait=False, flags=flags)
        for i in fresh:
            self.serving[i].wait_ready()
        self.cluster.wait_active(len(self.shape))
        self.await_pair()

    def await_pair(self):
        """The prefill worker is paired with the decode worker of now, and the router knows."""
        if len(self.shape) == 1:
            return
        prefill = self.serving[0]

        def up():
            told = re.findall(r"(paired with|lost the pair with) decode worker \S+:(\d+)", prefill.text())
            flows = [bool(flow.channel) for worker in self.cluster.active() for flow in worker.kv_flows]
            return told[-1:] == [("paired with", self.serving[1].fields["port"])] and sum(flows) == 2
        wait_until(up, HANG, lambda: f"no pair:\n{prefill.text()}\n{self.cluster.client.state()}")

    def ask(self, name):
        prompt, fields = ASKED[name]
        return Background(self.cluster.client, prompt, timeout=HANG, **fields)

    def is_right(self, name="greedy"):
        call = self.ask(name)
        call.join(HANG)
        self.assertIsNone(call.error, call.error)
        self.assertEqual(facts(call.answer), self.right[name])

    def comes_right(self, fault):
        """At once; where nobody had to be restarted one request more may meet the end of the pair."""
        if fault.owed == "recovers":
            call = self.ask(fault.asks)
            call.join(HANG)
            if call.error is not None:
                self.assertIn(call.error.code(), CODES["recovers"], call.error)
                self.all_free()
                self.await_pair()
        self.is_right(fault.asks)

    def all_free(self):
        def idle():
            active = self.cluster.active()
            return len(active) == len(self.shape) and all(w.blocks_free == w.blocks_total and w.running == w.waiting == 0
                                                          for w in active)
        wait_until(idle, FREE_WITHIN, self.cluster.client.state)

    def row(self, fault):
        self.start_missing()
        if fault.fresh:
            self.serving[fault.hits].end()
            self.start_missing()
        if fault.warm:
            self.is_right(fault.asks)
        worker = self.serving[fault.hits]
        before = len(worker.text())
        self.arm(fault.plan)
        call = self.ask(fault.asks)
        call.join(HANG)
        wait_until(lambda: "host_cuda: on purpose" in worker.text()[before:], SAID, lambda: "no fault:\n" + worker.text()[before:])
        if fault.owed != "recovers":
            code = worker.process.wait(HANG)
            self.assertEqual(code, {"ends": 1, "dies": -9}[fault.owed], worker.text()[before:])
        self.disarm()
        said = worker.text()[before:]
        if call.error is not None:
            self.assertIn(call.error.code(), CODES[fault.owed], call.error)
            outcome = f"{call.error.code().name}: {call.error.details()}"
        else:
            self.assertEqual(facts(call.answer), self.right[fault.asks])
            outcome = "answered"
        for word in fault.words:
            wait_until(lambda: word in worker.text()[before:], SAID, lambda: f"{word!r} in {worker.text()[before:]}")
        if fault.owed == "recovers":
            self.assertTrue(all(w.process.poll() is None for w in self.serving.values()), said)
        self.start_missing()
        self.comes_right(fault)
        self.all_free()
        return outcome

    def test_steps(self):
        self.run_rows("steps", cases.STEPS, [("both", [])])

    def test_ranks(self):
        self.run_rows("ranks", cases.RANKS, [("both", RANK_FLAGS)])

    def handovers(self, channel, faults):
        flags = ["--kv-channel", channel]
        self.run_rows(channel, faults, [("prefill", [*flags, "--device", 0]), ("decode", [*flags, "--device", 1])])

    def test_handover_by_cuda_ipc(self):
        self.handovers("cuda-ipc", cases.HANDOVERS)

    def test_handover_by_the_host(self):
        self.handovers("shm", [fault for fault in cases.HANDOVERS if "Copy" in fault.plan or "Memset" in fault.plan])

    def test_handover_by_nccl(self):
        self.handovers("nccl", cases.PIPES)

    def test_meetings(self):
        """A communicator of a pair that fails while its ends meet: they meet again."""
        flags = ["--kv-channel", "nccl"]
        self.shape = [("prefill", [*flags, "--device", 0]), ("decode", [*flags, "--device", 1])]
        with contextlib.closing(Cluster(workers=0, model=self.model, worker_flags=FLAGS,
                                        router_flags=STAYS)) as cluster:
            cluster.__enter__()
            self.cluster, self.serving = cluster, {}
            self.start_missing()
            for fault in cases.MEETINGS:
                with self.subTest(phase=fault.phase, plan=fault.plan):
                    began = time.monotonic()
                    self.serving[0].end()
                    cluster.wait_active(1)
                    before = len(self.serving[1].text())
                    self.arm(fault.plan)
                    self.serving[0] = cluster.start_worker(role="prefill", flags=self.shape[0][1])

                    def said():
                        worker = self.serving[fault.hits]
                        return worker.text()[before if fault.hits == 1 else 0:]
                    for word in ("host_cuda: on purpose", *fault.words):
                        wait_until(lambda: word in said(), SAID, lambda: f"{word!r} in {said()}")
                    self.disarm()
                    cluster.wait_active(2)
                    self.await_pair()
                    self.is_right()
                    self.all_free()
                    self.say("nccl", fault, "met again", began)

    def test_handover_of_ranks(self):
        self.run_rows("ranks 2+1", cases.RANK_HANDOVERS, [("prefill", RANK_FLAGS), ("decode", ["--device", 2])])


if __name__ == "__main__":
    unittest.main()
