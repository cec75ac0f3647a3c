"""A client that goes away in any state of its request: the blocks are back within two seconds.

With the real model, because a request must last long enough to be found in each state.
"""
import signal
import subprocess
import unittest

from cluster import BUILD, Cluster, real_model, wait_until
from sluice_client import Background

BOUND = 2  # seconds, promised
LONG_PROMPT = [500 + i % 1000 for i in range(6000)]


class CancelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(model=real_model())
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client
        cls.baseline = cls.cluster.blocks_free()
        cls.context = cls.client.state().context_length

    def idle(self):
        state = self.client.state()
        return (state.queued == 0 and state.running == 0 and self.cluster.blocks_free() == self.baseline
                and all(w.running == 0 and w.waiting == 0 for w in state.workers))

    def setUp(self):
        wait_until(self.idle, 20, self.client.state)

    def assert_idle_again(self):
        wait_until(self.idle, BOUND, lambda: f"blocks_free == {self.baseline}:\n{self.client.state()}")
        self.cluster.check_alive()

    def stays_queued(self, count):
        """Every request passes through the queue; one that is still there after a second waits for blocks."""
        try:
            wait_until(lambda: self.client.state().running == count, 1, "running")
        except AssertionError:
            self.assertEqual(self.client.state().queued, 1)
            return True
        return False

    def fill(self):
        """Requests that take all blocks and last; the last of them is in the router's queue."""
        calls = []
        queued = False
        while not queued:
            self.assertLess(len(calls), 64)
            calls.append(Background(self.client, "Count:", max_tokens=self.context - 100, ignore_eos=True))
            queued = self.stays_queued(len(calls))
        self.addCleanup(lambda: [call.cancel() for call in calls])
        return calls

    def cancel_all(self, calls):
        for call in calls:
            call.cancel()
        for call in calls:
            call.join(10)

    def test_decoding(self):
        call = Background(self.client, "Count:", max_tokens=4000, ignore_eos=True)
        wait_until(lambda: len(call.answer.token_ids) >= 3, 20, "three tokens")
        self.assertLess(self.cluster.blocks_free(), self.baseline)
        call.cancel()
        self.assert_idle_again()

    def test_prefilling(self):
        call = Background(self.client, LONG_PROMPT, max_tokens=10)
        wait_until(lambda: self.cluster.blocks_free() < self.baseline, 10, self.client.state)
        self.assertEqual(call.answer.token_ids, [])
        call.cancel()
        self.assert_idle_again()

    def test_prefilling_behind_another(self):
        first = Background(self.client, LONG_PROMPT, max_tokens=10)
        second = Background(self.client, LONG_PROMPT[::-1], max_tokens=10)
        wait_until(lambda: self.client.state().running + self.client.state().queued == 2, 10, self.client.state)
        second.cancel()
        first.cancel()
        self.assert_idle_again()

    def test_queued(self):
        calls = self.fill()
        free = self.cluster.blocks_free()
        calls[-1].cancel()
        wait_until(lambda: self.client.state().queued == 0, BOUND, self.client.state)
        self.assertEqual(self.cluster.blocks_free(), free)  # no worker was touched
        self.cancel_all(calls[:-1])
        self.assert_idle_again()

    def test_queued_goes_on_when_room_appears(self):
        calls = self.fill()
        calls[0].cancel()
        wait_until(lambda: len(calls[-1].answer.token_ids) >= 1, 20, "the queued request's first token")
        self.cancel_all(calls[1:])
        self.assert_idle_again()

    def test_killed_client_process(self):
        for sig, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
            with self.subTest(sig):
                with subprocess.Popen([BUILD / "sluice", "generate", "--raw", "--router", self.cluster.address,
                                       "--max-tokens", "4000", "--ignore-eos", "Count:"], stdout=subprocess.PIPE) as process:
                    self.assertTrue(process.stdout.read(4))
                    process.send_signal(sig)
                    self.assertEqual(process.wait(10), code)
                self.assert_idle_again()

    def test_killed_client_process_while_prefilling(self):
        prompt = ",".join(map(str, LONG_PROMPT))
        with subprocess.Popen([BUILD / "sluice", "generate", "--router", self.cluster.address, "--token-ids",
                               prompt], stdout=subprocess.DEVNULL) as process:
            wait_until(lambda: self.cluster.blocks_free() < self.baseline, 10, self.client.state)
            process.kill()
        self.assert_idle_again()

    def test_closed_output_ends_the_request(self):
        with subprocess.Popen([BUILD / "sluice", "generate", "--raw", "--router", self.cluster.address, "--max-tokens",
                               "4000", "--ignore-eos", "Count:"], stdout=subprocess.PIPE) as process:
            process.stdout.read(4)
            process.stdout.close()
            process.wait(10)
        self.assert_idle_again()

    def test_deadline_of_the_request(self):
        call = Background(self.client, "Count:", max_tokens=4000, ignore_eos=True, timeout_ms=500)
        call.join(10)
        self.assertEqual(call.error.code().name, "DEADLINE_EXCEEDED")
        self.assert_idle_again()


if __name__ == "__main__":
    unittest.main()
