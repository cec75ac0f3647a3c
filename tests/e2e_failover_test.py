"""Two prefill and two decode workers under load; processes of each role are killed, stopped and restarted on their ports
in turn: every stream ends with the tokens and log-probabilities that it has alone, whatever its choices, penalties, stop
strings and seeds. Prints how long the pauses were.
"""
import signal
import time
import unittest

from cluster import wait_until
from sluice_client import Background
from stream_load import LEASE, ROUTER, StreamLoad, told


class FailoverTest(StreamLoad):
    # ---- faults ----

    def newest(self, role, which):
        return [w for w in self.cluster.of_role(role) if w.process.poll() is None][which]

    def restart(self, worker):
        self.cluster.start_worker(role=worker.role, port=int(worker.fields["port"]))
        self.cluster.wait_active(4)

    def kill_each(self, role, rounds):
        self.load()
        for i in range(rounds):
            time.sleep(1.0)
            worker = self.newest(role, i % 2)
            worker.end(signal.SIGKILL)
            time.sleep(0.5)
            self.restart(worker)
        time.sleep(1.0)

    def test_decode_workers_are_killed(self):
        self.kill_each("decode", 6)
        self.all_right(at_least_moved=3)

    def test_prefill_workers_are_killed(self):
        self.kill_each("prefill", 6)
        self.all_right(at_least_moved=0)

    def test_workers_stand_still(self):
        self.load()
        for role in ("decode", "prefill"):
            time.sleep(1.0)
            worker = self.newest(role, 0)
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(LEASE + 3)
            worker.process.send_signal(signal.SIGCONT)
            self.cluster.wait_active(4)
        self.all_right(at_least_moved=1)


class OneOfARoleTest(StreamLoad):
    router_flags = [*ROUTER, "--no-fallback-both"]

    def test_the_only_worker_of_a_role_dies_and_comes_back(self):
        """Streams wait for it; who comes meanwhile is told that a role is missing."""
        spare, only = self.cluster.of_role("decode")
        spare.end(signal.SIGTERM)
        wait_until(lambda: len(self.cluster.active()) == 3, 5, self.cluster.client.state)
        calls = [(i, Background(self.cluster.client, *self.pool[i][:1], **self.pool[i][1])) for i in (0, 1, 2)]
        wait_until(lambda: all(c.answer.token_ids for _, c in calls), 20, "first tokens")
        only.end(signal.SIGKILL)
        time.sleep(2)
        self.assertFalse(any(c.done.is_set() for _, c in calls))
        self.cluster.start_worker(role="decode", port=int(only.fields["port"]))
        for i, call in calls:
            call.join(60)
            self.assertIsNone(call.error, call.error)
            self.assertEqual(told(call.answer, self.pool[i][1].get("n", 1)), self.alone[i])
            self.assertGreaterEqual(call.answer.timing.moves, 1)


if __name__ == "__main__":
    unittest.main()
