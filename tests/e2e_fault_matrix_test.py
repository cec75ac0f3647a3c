"""The table of every state of a request x everything that may happen to its KV on the way, on real processes:

            | link stalls | link drops | byte corrupt | late write | router restarts
  queued      another request's transfer is hit, or it is cancelled and its bytes come late, while this one waits for a
              place at D: it must get that place, and the right answer
  reserved    its first piece is hit: nothing has landed
  flowing     a piece in the middle of its prompt
  handing off its last piece: the first token is out
  decoding    another request's transfer is hit

The columns "cancel", "P dies" and "D dies" of the same table are in e2e_split_faults_test.py.

Owed in each cell: the fault took place (its log line; void pieces at D for a late write; another incarnation of the
router), the answer is right or a begin of the right one with an error, all blocks are free within two seconds, and the
next request is right.
"""
import re
import signal
import time
import unittest

import fault_cases
from cluster import wait_until
from fault_cases import ABORTED, DATA_LOSS, LONG, UNAVAILABLE, fresh
from sluice_client import Background

STALL_WITHIN = 4  # seconds: two for the bytes that were announced, a tick, and the engine's step
MIDDLE = 12       # a piece of a long prompt, of about thirty
FAULTS = {"link stalls": "stall", "link drops": "fail", "byte corrupt": "corrupt", "late write": "delay",
          "router restarts": None}


class MatrixTest(fault_cases.Faults):
    def setUp(self):
        self.start(prefill=1, decode=1)
        self.table = {}
        # How many pieces the requests below have, in the order in which a fresh prefill worker sends them.
        self.restart_prefill(None)
        self.small = self.pieces_of(*self.asked[0])
        self.counting = self.pieces_of("Count:", {"max_tokens": 2, "ignore_eos": True})
        self.assertGreaterEqual(self.pieces_of(fresh(LONG), {"max_tokens": 2}), MIDDLE + 4)

    def flow(self, role):
        pid = self.cluster.of_role(role)[0].process.pid
        for worker in self.cluster.active():
            if worker.pid == pid:
                up = [f for f in worker.kv_flows if f.channel]
                return up[0] if up else None
        return None

    def void_pieces(self):
        """That D took from the prefill worker of now after their request had ended."""
        flow = self.flow("decode")
        return flow.void_pieces if flow else 0

    def pieces_of(self, prompt, fields):
        before = self.flow("prefill").pieces if self.flow("prefill") else 0
        transfers = self.flow("prefill").transfers if self.flow("prefill") else 0
        self.client.generate(prompt, **fields)
        wait_until(lambda: self.flow("prefill") and self.flow("prefill").transfers > transfers, 5, self.client.state)
        return self.flow("prefill").pieces - before

    def restart_prefill(self, fault):
        """A fresh one, whose pieces count from 0."""
        old = [w for w in self.cluster.workers if w.role == "prefill"][-1]
        old.end(signal.SIGTERM)
        self.cluster.start_worker(role="prefill", port=int(old.fields["port"]), flags=["--fault", fault] if fault else [])
        self.cluster.wait_active(2)
        self.prefill = self.cluster.of_role("prefill")[0]
        wait_until(lambda: "paired with" in self.prefill.text(), 10, self.prefill.text)

    def right(self, call, want, whole=False):
        got = call.answer.token_ids
        self.assertEqual(got, want[:len(got)], "a wrong token")
        if whole or call.error is None:
            self.assertIsNone(call.error, call.error)
            self.assertEqual(got, want)

    # ---- the states: each returns (the request, what it should say, whose transfer is hit) ----

    def queued(self, fault):
        self.restart_prefill(f"{fault}={self.counting + MIDDLE}" if fault else None)
        self.first = Background(self.client, "Count:", max_tokens=500, ignore_eos=True)
        wait_until(lambda: len(self.first.answer.token_ids) > 2, 20, self.client.state)
        victim = Background(self.client, fresh(LONG), max_tokens=20, ignore_eos=True)
        prompt, fields = self.asked[-1]
        call = Background(self.client, prompt, **fields)
        wait_until(lambda: self.client.state().queued == 1, 5, self.client.state)
        self.assertNotIn("injected fault", self.prefill.text(), "too early")
        return call, self.alone[-1].token_ids, victim

    def reserved(self, fault):
        self.restart_prefill(f"{fault}=0" if fault else None)
        call = Background(self.client, fresh(LONG), max_tokens=2, ignore_eos=True)
        if not fault:
            wait_until(lambda: self.free_of("decode") < fault_cases.BLOCKS, 10, self.client.state)
        return call, None, call

    def flowing(self, fault):
        self.restart_prefill(f"{fault}={MIDDLE}" if fault else None)
        decode = self.cluster.of_role("decode")[0]
        before = decode.text().count("has landed")
        call = Background(self.client, fresh(LONG), max_tokens=2, ignore_eos=True)
        if not fault:
            wait_until(lambda: decode.text().count("has landed") >= before + MIDDLE, 20, "pieces at the decode worker")
        return call, None, call

    def handing_off(self, fault):
        self.restart_prefill(f"{fault or 'delay'}={self.small - 1}")
        prompt, fields = self.asked[0]
        call = Background(self.client, prompt, **{**fields, "max_tokens": 6})
        if not fault:
            wait_until(lambda: call.answer.token_ids, 10, "the first token")
        return call, self.alone[0].token_ids, call

    def decoding(self, fault):
        self.restart_prefill(f"{fault}={self.counting + 2}" if fault else None)
        call = Background(self.client, "Count:", max_tokens=60, ignore_eos=True)
        wait_until(lambda: len(call.answer.token_ids) >= 3, 20, "three tokens")
        victim = Background(self.client, fresh(LONG), max_tokens=2, ignore_eos=True)
        return call, self.counted, victim

    # ---- the faults ----

    def injected(self):
        wait_until(lambda: "injected fault" in self.prefill.text(), 20, self.prefill.text)
        return re.findall(r"injected fault: (\w+) KV piece (\d+)", self.prefill.text())

    def hit(self, enter, name):
        """The transfer is hit; its request fails in its class, or its client has gone and the bytes come late."""
        call, want, victim = enter(FAULTS[name])
        happened = self.injected()
        since = time.monotonic()
        if name == "late write":
            void = self.void_pieces()
            victim.cancel()
        codes = {"link stalls": (ABORTED, UNAVAILABLE), "link drops": (ABORTED, UNAVAILABLE), "byte corrupt": (DATA_LOSS,)}
        if name in codes:
            error = self.fails(victim, since, *codes[name], within=STALL_WITHIN if name == "link stalls" else 2)
            outcome = error.code().name
        else:
            outcome = "cancelled"
        if victim is not call:
            if enter != self.queued:
                call.join(60)
                self.right(call, want, whole=True)
            else:  # it gets the victim's place, and is asked to wait no longer than the pair is down
                call.join(60)
                self.right(call, want, whole=name in ("byte corrupt", "late write"))
                self.first.join(60)
                self.assertEqual(self.first.answer.token_ids[:60], self.counted[:len(self.first.answer.token_ids)])
            outcome += ", right" if call.error is None else f", {call.error.code().name}"
        elif want is not None:
            call.join(10)
            self.right(call, want)
        if name == "late write":
            wait_until(lambda: self.void_pieces() > void, 5, self.client.state)
        return outcome, happened[0]

    def router_restarts(self, enter):
        call, want, victim = enter(None)
        before = self.client.state().router_incarnation
        self.assertIsNone(call.error, call.error)
        self.cluster.router.end(signal.SIGKILL)
        call.join(10)
        self.assertIsNotNone(call.error)
        if want is not None:
            self.right(call, want)
        self.cluster.start_router(port=self.cluster.port)
        self.client = self.cluster.client
        self.cluster.wait_active(2)
        self.assertNotEqual(self.client.state().router_incarnation, before)
        return call.error.code().name, ("router", str(before)[:6])

    def row(self, enter):
        for name in FAULTS:
            with self.subTest(state=enter.__name__, fault=name):
                outcome, proof = self.router_restarts(enter) if FAULTS[name] is None else self.hit(enter, name)
                took = self.all_free()
                wait_until(lambda: "lost the pair" not in self.prefill.text()
                           or self.prefill.text().count("paired with") > self.prefill.text().count("lost the pair"), 5,
                           self.prefill.text)
                self.next_is_fine()
                self.all_free()
                print(f"  {enter.__name__:12} x {name:16} {' '.join(proof):24} {outcome}; free after {took * 1000:.0f} ms",
                      flush=True)

    def test_queued(self):
        self.row(self.queued)

    def test_reserved(self):
        self.row(self.reserved)

    def test_flowing(self):
        self.row(self.flowing)

    def test_handing_off(self):
        self.row(self.handing_off)

    def test_decoding(self):
        self.row(self.decoding)


if __name__ == "__main__":
    unittest.main()
