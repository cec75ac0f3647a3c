"""Processes that die, where requests do not move to others: what clients and the others then see."""
import signal
import time
import unittest

import grpc

from cluster import NO_MOVES, Cluster, real_model, wait_until
from sluice_client import ACTIVE, Background


class FaultsTest(unittest.TestCase):
    """With the real model, so that a request is surely running when a process dies."""

    def setUp(self):
        self.cluster = Cluster(model=real_model(), router_flags=NO_MOVES)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.close)
        self.baseline = self.cluster.blocks_free()

    def running_call(self):
        call = Background(self.cluster.client, "Count:", max_tokens=4000, ignore_eos=True)
        wait_until(lambda: len(call.answer.token_ids) >= 3, 30, "three tokens")
        return call

    def test_worker_killed_and_restarted_on_its_port(self):
        worker = self.cluster.workers[0]
        port = int(worker.fields["port"])
        old = self.cluster.client.state().workers[0].incarnation
        call = self.running_call()
        worker.end(signal.SIGKILL)
        began = time.monotonic()
        call.join(10)
        self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE, call.error)
        self.assertLess(time.monotonic() - began, 3)
        wait_until(lambda: not self.cluster.active(), 3, self.cluster.client.state)

        self.cluster.start_worker(port=port)
        self.cluster.wait_active(1)
        state = self.cluster.client.state()
        worker = next(w for w in state.workers if w.state == ACTIVE)
        self.assertEqual(worker.port, port)
        self.assertNotEqual(worker.incarnation, old)
        for _ in range(10):
            self.cluster.check_alive()
        wait_until(lambda: self.cluster.blocks_free() == self.baseline, 2, self.cluster.client.state)

    def test_no_worker_at_all(self):
        self.cluster.workers[0].end(signal.SIGTERM)
        wait_until(lambda: not self.cluster.active(), 3, self.cluster.client.state)
        with self.assertRaises(grpc.RpcError) as raised:
            self.cluster.client.generate("ab", max_tokens=1, timeout=10)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        run = self.cluster.cli("generate", "ab")
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)

    def test_router_killed(self):
        call = self.running_call()
        self.assertLess(self.cluster.blocks_free(), self.baseline)
        self.cluster.router.end(signal.SIGKILL)
        call.join(10)
        self.assertIsNotNone(call.error)
        # The next router on the same port finds the worker again, with all its blocks.
        self.cluster.start_router(port=self.cluster.port)
        self.cluster.wait_active(1)
        wait_until(lambda: self.cluster.blocks_free() == self.baseline, 2, self.cluster.client.state)
        self.cluster.check_alive()

    def test_terminate(self):
        call = self.running_call()
        self.assertEqual(self.cluster.workers[0].end(signal.SIGTERM), 0)
        call.join(10)
        self.assertIsNotNone(call.error)
        self.assertEqual(self.cluster.router.end(signal.SIGTERM), 0)


if __name__ == "__main__":
    unittest.main()
