"""Prefill and decode apart, on real processes, when something goes wrong: every state of a request x {the client goes, P
is killed, D is killed}, and faults of the transfer.

Owed each time: the right class of error within a second, all blocks of who is left free again within two, never a wrong
token, and the next request is fine. Each test proves that its fault took place.
"""
import re
import signal
import time
import unittest

import fault_cases
from cluster import wait_until
from fault_cases import (ABORTED, BLOCKS, DATA_LOSS, ERROR_WITHIN, FREE_WITHIN, LEASE, LONG, SILENCE, UNAVAILABLE, fresh)
from sluice_client import Background


class EveryStateTest(fault_cases.Faults):
    def setUp(self):
        self.start(prefill=1, decode=1)

    def restart(self, role, flags=None):
        """A worker of the role on the port of the last one."""
        old = [w for w in self.cluster.workers if w.role == role][-1]
        if old.process.poll() is None:
            old.end(signal.SIGTERM)
        self.cluster.start_worker(role=role, port=int(old.fields["port"]), flags=flags)
        self.cluster.wait_active(2)

    # ---- the states ----

    def queued(self):
        """D is full: the request waits at the router."""
        self.fillers = [Background(self.client, "Count:", max_tokens=1200, ignore_eos=True) for _ in range(2)]
        wait_until(lambda: all(len(f.answer.token_ids) > 2 for f in self.fillers), 20, self.client.state)
        call = Background(self.client, fresh(LONG), max_tokens=4, ignore_eos=True)
        wait_until(lambda: self.client.state().queued == 1, 5, self.client.state)
        return call

    def prefilling_early(self):
        call = Background(self.client, fresh(LONG), max_tokens=50, ignore_eos=True)
        wait_until(lambda: self.free_of("decode") < BLOCKS, 10, self.client.state)
        return call

    def prefilling_with_pieces_flowing(self, max_tokens=50):
        decode = self.cluster.of_role("decode")[0]
        before = decode.text().count("has landed")
        call = Background(self.client, fresh(LONG), max_tokens=max_tokens, ignore_eos=True)
        wait_until(lambda: decode.text().count("has landed") >= before + 4, 20, "four pieces at the decode worker")
        self.assertEqual(call.answer.token_ids, [])
        return call

    def handing_off(self):
        """The first token is out and the only piece is lost: D waits for it."""
        self.restart("prefill", [*self.cluster.flags_of["prefill"], "--fault", "lose=0"])
        prompt, fields = self.asked[0]
        call = Background(self.client, prompt, **{**fields, "max_tokens": 50})
        prefill = self.cluster.of_role("prefill")[0]
        wait_until(lambda: call.answer.token_ids, 10, "the first token")
        wait_until(lambda: "injected fault: losing" in prefill.text(), 10, prefill.text)
        self.assertEqual(call.answer.token_ids, self.alone[0].token_ids[:1])
        self.assertIsNone(call.error)
        return call

    def decoding(self):
        call = Background(self.client, "Count:", max_tokens=60, ignore_eos=True)
        wait_until(lambda: len(call.answer.token_ids) >= 3, 20, "three tokens")
        self.assertFalse(call.done.is_set())
        return call

    # ---- what happens in them ----

    def say(self, enter):
        """No subtests: after a failure the cluster is not what the next state needs."""
        print(f"  {enter.__name__}", flush=True)

    def end_fillers(self):
        for filler in getattr(self, "fillers", []):
            filler.cancel()

    def waits_or_is_told(self, call, since):
        """No worker knew of it: it is served when there are workers again, or is told at once that there are none."""
        call.join(100)
        if call.error is None:
            self.assertEqual(len(call.answer.token_ids), 4)
        else:
            self.assertEqual(call.error.code(), UNAVAILABLE, call.error)
            self.assertLess(call.ended - since, ERROR_WITHIN + 0.05)

    def test_the_client_goes(self):
        for enter in (self.queued, self.prefilling_early, self.prefilling_with_pieces_flowing, self.decoding,
                      self.handing_off):
            self.say(enter)
            call = enter()
            if enter == self.queued:
                free = self.cluster.blocks_free()
                call.cancel()
                wait_until(lambda: self.client.state().queued == 0, FREE_WITHIN, self.client.state)
                self.assertEqual(self.cluster.blocks_free(), free, "no worker was touched")
                self.end_fillers()
            else:
                call.cancel()
            took = self.all_free()
            print(f"    free again after {took * 1000:.0f} ms", flush=True)
            if enter == self.handing_off:  # the pair's channel is out of step: a new epoch begins
                prefill = self.cluster.of_role("prefill")[0]
                wait_until(lambda: prefill.text().count("paired with") == 2, 5, prefill.text)
            self.next_is_fine()

    def test_the_client_goes_while_prefills_queue(self):
        """Behind another one at P: a cancel does not wait for the other's prompt."""
        first, second = (Background(self.client, fresh(900), max_tokens=4, ignore_eos=True) for _ in range(2))
        wait_until(lambda: self.client.state().running + self.client.state().queued == 2, 10, self.client.state)
        time.sleep(0.5)
        first.cancel()
        second.cancel()
        self.all_free()
        self.next_is_fine()

    def test_the_prefill_worker_is_killed(self):
        for enter in (self.queued, self.prefilling_early, self.prefilling_with_pieces_flowing, self.handing_off,
                      self.decoding):
            self.say(enter)
            call = enter()
            self.cluster.of_role("prefill")[0].end(signal.SIGKILL)
            since = time.monotonic()
            if enter == self.queued:
                self.end_fillers()
                self.restart("prefill")
                self.waits_or_is_told(call, since)
            elif enter == self.decoding:  # D has all that it needs
                self.assertEqual(call.join(100).token_ids, self.counted)
            else:
                self.fails(call, since, UNAVAILABLE)
            wait_until(lambda: self.free_of("decode") == BLOCKS, FREE_WITHIN, self.client.state)
            if enter != self.queued:
                self.restart("prefill")
            self.next_is_fine()
            self.all_free()

    def test_the_decode_worker_is_killed(self):
        for enter in (self.queued, self.prefilling_early, self.prefilling_with_pieces_flowing, self.handing_off,
                      self.decoding):
            self.say(enter)
            call = enter()
            self.cluster.of_role("decode")[0].end(signal.SIGKILL)
            since = time.monotonic()
            if enter == self.queued:
                for filler in self.fillers:
                    self.fails(filler, since, UNAVAILABLE)
                self.restart("decode")
                self.waits_or_is_told(call, since)
            else:
                self.fails(call, since, UNAVAILABLE)
                wait_until(lambda: self.free_of("prefill") == BLOCKS, FREE_WITHIN, self.client.state)
                self.restart("decode")
            self.next_is_fine()
            self.all_free()

    def test_the_router_is_killed(self):
        for enter in (self.prefilling_with_pieces_flowing, self.decoding):
            self.say(enter)
            call = enter()
            self.cluster.router.end(signal.SIGKILL)
            call.join(10)
            self.assertIsNotNone(call.error)
            since = time.monotonic()
            self.cluster.start_router(port=self.cluster.port)
            self.client = self.cluster.client
            self.cluster.wait_active(2)
            self.all_free(max(0.3, FREE_WITHIN - (time.monotonic() - since)))
            self.next_is_fine()

    def test_the_router_is_silent(self):
        """Only the lease tells: its blocks are free two seconds after it."""
        call = self.prefilling_with_pieces_flowing(max_tokens=500)  # longer than a lease, however fast the machine
        self.cluster.router.process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE + FREE_WITHIN)
        self.cluster.router.process.send_signal(signal.SIGCONT)
        self.all_free(0.7)  # the router has to catch up; the prompt is longer than that
        call.join(10)
        self.assertEqual(call.error.code(), UNAVAILABLE, call.error)
        self.assertIn("renew", call.error.details())
        self.next_is_fine()


class TransferFaultsTest(fault_cases.Faults):
    """One prefill worker whose transfers break, one whose don't, and a decode worker."""

    def broken(self, fault, code, *others):
        """`code`: of the request that the fault hits; `others`: of those that the end of its pair may hit."""
        self.start(decode=1, prefill=1)
        healthy = self.cluster.of_role("prefill")[0]
        faulty = self.cluster.start_worker(role="prefill", flags=["--fault", fault])
        self.cluster.wait_active(3)
        wait_until(lambda: "paired with" in faulty.text(), 10, faulty.text)
        calls = [Background(self.client, prompt, **fields) for prompt, fields in self.asked]
        failed = []
        for call, want in zip(calls, self.alone, strict=True):
            call.join(SILENCE + 30)
            n = len(call.answer.token_ids)
            self.assertEqual(call.answer.token_ids, want.token_ids[:n], "a wrong token")
            self.assertEqual(call.answer.logprobs, want.logprobs[:n])
            if call.error is None:
                self.assertEqual(n, len(want.token_ids))
            else:
                failed.append(call)
                self.assertIn(call.error.code(), (code, *others), call.error)
                self.assertLessEqual(n, 1, "it decoded from KV that is not whole")
        self.assertNotIn("injected fault:", healthy.text())
        self.assertIn(code, [call.error.code() for call in failed])
        self.assertLess(len(failed), len(calls), "the others go on")
        self.all_free()
        injected = re.findall(r"injected fault: \w+ing KV piece \d+", faulty.text())
        self.assertGreater(len(injected), 0)
        print(f"{fault}: {len(injected)} injected, {len(failed)} of {len(calls)} failed with "
              f"{sorted({call.error.code().name for call in failed})}", flush=True)
        wait_until(lambda: faulty.text().count("lost the pair") < faulty.text().count("paired with"), 5, faulty.text)
        for which in range(len(self.asked)):
            self.next_is_fine(which)
        self.all_free()
        return failed, faulty

    def test_a_corrupt_byte(self):
        failed, faulty = self.broken("corrupt=2", DATA_LOSS)
        self.assertEqual(len(failed), 1, "one piece of one request")
        self.assertIn("checksum", failed[0].error.details())
        self.assertNotIn("lost the pair", faulty.text())

    def test_lost_bytes(self):
        _, faulty = self.broken("lose=2", ABORTED, UNAVAILABLE)
        self.assertIn("lost the pair", faulty.text())

    def test_a_sender_that_sends_nothing_any_more(self):
        _, faulty = self.broken("stall=3", ABORTED, UNAVAILABLE)
        self.assertIn("lost the pair", faulty.text())

    def test_a_channel_that_fails(self):
        _, faulty = self.broken("fail=2", ABORTED, UNAVAILABLE)
        self.assertIn("lost the pair", faulty.text())

    def test_a_sender_that_stands_still(self):
        """The whole process, as on a machine that swaps; it comes back later."""
        self.start(decode=1, prefill=1)
        decode, prefill = self.cluster.of_role("decode")[0], self.cluster.of_role("prefill")[0]
        call = Background(self.client, fresh(LONG), max_tokens=50, ignore_eos=True)
        before = decode.text().count("has landed")
        wait_until(lambda: decode.text().count("has landed") >= before + 3, 20, "three pieces at the decode worker")
        prefill.process.send_signal(signal.SIGSTOP)
        since = time.monotonic()
        try:
            self.fails(call, since, UNAVAILABLE, within=SILENCE + 1)
            self.assertEqual(call.answer.token_ids, [])
            wait_until(lambda: self.free_of("decode") == BLOCKS, FREE_WITHIN, self.client.state)
        finally:
            prefill.process.send_signal(signal.SIGCONT)
        self.cluster.wait_active(2)
        self.all_free(FREE_WITHIN)
        self.next_is_fine()


if __name__ == "__main__":
    unittest.main()
