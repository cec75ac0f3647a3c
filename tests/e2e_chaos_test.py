"""Two minutes of chaos.py with the tiny model, and that its judge and its plan can fail. The hours are by hand."""
import dataclasses
import json
import os
import unittest

import chaos
import chaos_judge
import chaos_plan
from chaos_ask import Choice, Seen, class_of
from chaos_judge import Disturbance, judge

SEED = os.environ.get("SLUICE_TEST_SEED")


class ChaosTest(unittest.TestCase):
    def test_chaos(self):
        figures = chaos.chaos(chaos.parse(["--rounds", "1", *(["--seed", SEED] if SEED else [])]))
        print(chaos.table(figures))
        print(json.dumps(figures), flush=True)
        self.assertEqual(figures["faults"], [])
        events = figures["events"]
        self.assertGreater(sum(events["injected"].values()), 0)
        for role in ("router", "prefill", "decode"):
            self.assertGreater(events[role]["short stop"], 0)
            self.assertGreater(sum(events[role].get(k, 0) for k in ("kill", "terminate", "kill rank")), 0)
        for way in ("grpc", "http", "sse"):
            self.assertGreater(figures["outcomes"][way]["OK"], 0)
        self.assertGreater(figures["moved"], 0)
        self.assertGreater(figures["outcomes"]["cancel"]["CANCELLED"], 0)
        self.assertGreater(figures["outcomes"]["deadline"]["DEADLINE_EXCEEDED"], 0)


class TheJudgeCanFail(unittest.TestCase):
    ALONE = Seen([Choice((5, 6, 7), (-1.0, -2.0, -3.0), ((), (), ()), "abc", "2")], (9, 3))
    KILLED = Disturbance("P0", "kill", 10.0, 12.0)
    ROUTER = Disturbance("router", "kill", 10.0, 12.0)

    def seen(self, began=11.0, ended=12.0, code="OK", **fields):
        own = {k: fields.pop(k) for k in ("way", "timeout_ms", "left") if k in fields}
        choice = dataclasses.replace(self.ALONE.choices[0], **fields)
        return Seen([choice], (9, 3), code, began=began, ended=ended, **own)

    def verdict(self, seen, *disturbances):
        return judge(seen, self.ALONE, disturbances)

    def test_a_right_answer(self):
        self.assertEqual(self.verdict(self.seen()), "")
        self.assertEqual(self.verdict(self.seen(way="sse", tokens=(), top=())), "")

    def test_a_wrong_answer(self):
        for wrong in ({"tokens": (5, 6, 8)}, {"logprobs": (-1.0, -2.0, -3.0000002)}, {"text": "abd"}, {"finish": "1"},
                      {"tokens": (5, 6)}):
            self.assertIn("is not", self.verdict(self.seen(**wrong), self.KILLED), wrong)
        self.assertIn("without an end", self.verdict(self.seen(finish="")))
        short = self.seen()
        short.usage = (9, 2)
        self.assertIn("usage", self.verdict(short))

    def test_a_wrong_beginning(self):
        begun = {"finish": "", "code": "UNAVAILABLE"}
        right = {"tokens": (5,), "logprobs": (-1.0,), "top": ((),), "text": "a"}
        self.assertEqual(self.verdict(self.seen(**begun, **right), self.ROUTER), "")
        self.assertIn("does not begin", self.verdict(self.seen(**begun, **{**right, "tokens": (6,)}), self.ROUTER))
        self.assertIn("does not begin", self.verdict(self.seen(**begun, **{**right, "text": "b"}), self.ROUTER))

    def test_errors_need_a_reason(self):
        begun = {"finish": "", "tokens": (), "logprobs": (), "top": (), "text": ""}
        for code in ("UNAVAILABLE", "ABORTED", "DATA_LOSS"):
            self.assertIn("the router was well", self.verdict(self.seen(code=code, **begun)))
            self.assertIn("the router was well", self.verdict(self.seen(code=code, **begun), self.KILLED))
            self.assertEqual(self.verdict(self.seen(code=code, **begun), self.ROUTER), "")
        nobody = self.seen(code="UNAVAILABLE", **begun)
        nobody.detail = "no worker is alive"
        self.assertEqual(self.verdict(nobody, self.KILLED), "")
        self.assertIn("the router was well", self.verdict(nobody))
        self.assertIn("no class", self.verdict(self.seen(code="INTERNAL", **begun), self.KILLED))
        self.assertIn("no class", self.verdict(self.seen(code="INVALID_ARGUMENT", **begun), self.KILLED))
        self.assertIn("nobody cancelled", self.verdict(self.seen(code="CANCELLED", **begun), self.KILLED))
        self.assertEqual(self.verdict(self.seen(code="CANCELLED", left=True, **begun)), "")
        ended = Disturbance("router", "terminate", 10.0, 12.0)
        self.assertEqual(self.verdict(self.seen(code="CANCELLED", **begun), ended), "")
        self.assertIn("without a deadline", self.verdict(self.seen(code="DEADLINE_EXCEEDED", **begun), self.KILLED))
        self.assertEqual(self.verdict(self.seen(code="DEADLINE_EXCEEDED", timeout_ms=900, **begun)), "")
        self.assertIn("late", self.verdict(self.seen(code="DEADLINE_EXCEEDED", timeout_ms=900, ended=20.0, **begun)))
        self.assertIn("early", self.verdict(self.seen(code="DEADLINE_EXCEEDED", timeout_ms=3000, **begun)))

    def test_nothing_may_hang(self):
        self.assertIn("took", self.verdict(self.seen(ended=11.0 + chaos_judge.PATIENCE + 1)))
        stopped = Disturbance("D0", "long stop", 12.0, 20.0)
        self.assertEqual(self.verdict(self.seen(ended=11.0 + chaos_judge.PATIENCE + 5), stopped), "")
        forever = Disturbance("D0", "long stop", 0.0)
        self.assertIn("took", self.verdict(self.seen(ended=11.0 + chaos_judge.LONGEST + 1), forever))

    def test_disturbances_end(self):
        all_of_them = chaos_judge.Disturbances()
        one = all_of_them.begin("P0", "kill", 5.0)
        self.assertEqual(all_of_them.during(100.0, 101.0), [one])
        one.ended = 6.0
        self.assertEqual(all_of_them.during(6.0 + chaos_judge.GRACE + 0.1, 10.0), [])
        self.assertEqual(all_of_them.during(6.0 + chaos_judge.GRACE - 0.1, 10.0), [one])

    def test_logs(self):
        fine = "I20260101 01:01:01.000000 1 a.cc:1] well\nW20260101 01:01:01.000000 1 a.cc:1] lost the pair\n"
        self.assertEqual(chaos_judge.bad_lines(fine), [])
        checksum = "E20260101 01:01:01.000000 1 a.cc:1] a piece has the wrong checksum"
        self.assertEqual(chaos_judge.bad_lines(fine + checksum), [checksum])
        self.assertEqual(chaos_judge.bad_lines(fine + checksum, ["wrong checksum"]), [])
        for deadly in ("F20260101 01:01:01.000000 1 a.cc:1] Check failed: x", "==1==ERROR: AddressSanitizer: x",
                       "a.cc:1:2: runtime error: overflow", "*** SIGSEGV", "terminate called after throwing"):
            self.assertEqual(len(chaos_judge.bad_lines(fine + deadly, [".*"])), 1, deadly)

    def test_classes_of_http(self):
        self.assertEqual(class_of("503: {}"), "UNAVAILABLE")
        self.assertEqual(class_of("500: worker decode: a KV piece has the wrong checksum"), "DATA_LOSS")
        self.assertEqual(class_of("500: oops"), "INTERNAL")
        self.assertEqual(class_of("{'message': 'x', 'code': 'unavailable'}"), "UNAVAILABLE")
        self.assertEqual(class_of("ConnectionResetError: x"), "UNAVAILABLE")


class ThePlan(unittest.TestCase):
    def test_repeats_by_its_seed(self):
        size = chaos_plan.Size()
        self.assertEqual(chaos_plan.make_round(7, 2, size), chaos_plan.make_round(7, 2, size))
        self.assertNotEqual(chaos_plan.make_round(7, 2, size), chaos_plan.make_round(8, 2, size))

    def test_one_round_has_every_kind(self):
        size = chaos_plan.Size()
        for seed in range(200):
            plan = chaos_plan.make_round(seed, 0, size)
            events = [e for phase in plan.phases for e in phase]
            planned = {(chaos_plan.role_of(e.slot), e.kind) for e in events}
            self.assertEqual(chaos_plan.kinds(size) - planned, set(), seed)
            for event in events:
                self.assertFalse(event.slot in plan.steady and "stop" not in event.kind, event)

    def test_nobody_stays_broken(self):
        for seed in range(50):
            for phase in chaos_plan.make_round(seed, 2, chaos_plan.Size()).phases:
                faulty = set()
                for event in phase:
                    if event.fault:
                        faulty.add(event.slot)
                    elif "stop" not in event.kind:
                        faulty.discard(event.slot)
                self.assertEqual(faulty, set(), seed)


if __name__ == "__main__":
    unittest.main()
