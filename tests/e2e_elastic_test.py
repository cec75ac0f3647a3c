"""A cluster that grows, shrinks and loses a whole role under load: no request fails, and every answer is the one alone."""
import signal
import subprocess
import time
import unittest

from cluster import BUILD, NO_MOVES, Cluster, wait_until
from sluice_client import Background
from stream_load import FLAGS, LEASE, StreamLoad, told


class ElasticTest(StreamLoad):
    def drain(self, worker, *flags, timeout=60):
        return subprocess.run([BUILD / "sluice", "drain", "--router", self.cluster.address, "--timeout", str(timeout), *flags,
                               f"127.0.0.1:{worker.fields['port']}"], capture_output=True, text=True, check=False,
                              timeout=timeout + 20)

    def state_of(self, worker):
        port = int(worker.fields["port"])
        return next(w for w in self.cluster.client.state().workers if w.port == port and w.state != 4)

    def drain_and_end(self, worker, *flags):
        run = self.drain(worker, *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        state = self.state_of(worker)
        self.assertEqual((state.state, state.requests, state.running), (3, 0, 0))
        self.assertEqual(worker.end(signal.SIGTERM), 0)

    def test_drained_workers_leave_and_new_ones_come(self):
        self.load()
        for role in ("decode", "prefill"):
            time.sleep(0.5)
            leaving = self.cluster.of_role(role)[1]
            self.cluster.start_worker(role=role)  # scale up
            self.cluster.wait_active(5)
            self.drain_and_end(leaving)
            wait_until(lambda: len(self.cluster.active()) == 4, 5, self.cluster.client.state)
        time.sleep(0.5)
        self.all_right(at_least_moved=0)

    def test_a_decode_worker_hands_its_streams_over(self):
        self.load()
        time.sleep(1.0)
        self.drain_and_end(self.cluster.of_role("decode")[0], "--hand-over")
        time.sleep(0.5)
        self.all_right(at_least_moved=1)

    def test_sigterm_is_a_hand_over_too(self):
        self.load()
        for role in ("decode", "prefill"):
            time.sleep(1.0)
            self.assertEqual(self.cluster.of_role(role)[0].end(signal.SIGTERM), 0)
        time.sleep(0.5)
        self.all_right(at_least_moved=1)

    def test_a_worker_that_nobody_knows(self):
        run = subprocess.run([BUILD / "sluice", "drain", "--router", self.cluster.address, "127.0.0.1:1"],
                             capture_output=True, text=True, check=False, timeout=20)
        self.assertEqual(run.returncode, 1)
        self.assertIn("127.0.0.1:1", run.stderr)

    def test_one_role_does_both_when_the_other_is_gone(self):
        """Streams go on, and new requests are served, by either role alone."""
        for role in ("prefill", "decode"):
            calls = [(i, Background(self.cluster.client, self.pool[i][0], **self.pool[i][1])) for i in range(6)]
            wait_until(lambda: all(c.answer.token_ids for _, c in calls), 20, "first tokens")
            ports = [int(w.fields["port"]) for w in self.cluster.of_role(role)]
            for worker in self.cluster.of_role(role):
                worker.end(signal.SIGKILL)
            calls += [(i, Background(self.cluster.client, self.pool[i][0], **self.pool[i][1])) for i in range(6, 12)]
            for i, call in calls:
                call.join(60)
                self.assertIsNone(call.error, call.error)
                self.assertEqual(told(call.answer, self.pool[i][1].get("n", 1)), self.alone[i], f"request {i}")
            for port in ports:
                self.cluster.start_worker(role=role, port=port)
            self.cluster.wait_active(4)


class NoFallbackTest(unittest.TestCase):
    def test_a_missing_role_is_unavailable(self):
        with Cluster(workers=0, prefill=1, decode=1, worker_flags=FLAGS,
                     router_flags=[*NO_MOVES, "--no-fallback-both", "--lease-ms", LEASE * 1000]) as cluster:
            cluster.client.generate([5] * 20, max_tokens=3)
            cluster.of_role("prefill")[0].end(signal.SIGTERM)
            wait_until(lambda: len(cluster.active()) == 1, 5, cluster.client.state)
            call = Background(cluster.client, [5] * 20, max_tokens=3)
            call.join(10)
            self.assertEqual(call.error.code().name, "UNAVAILABLE")
            self.assertIn("prefill", call.error.details())


if __name__ == "__main__":
    unittest.main()
