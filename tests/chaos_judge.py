"""Whether what came of a request may have come of it. Pure: times are arguments.

A disturbance is a span of time in which something was wrong on purpose, until a moment after it was mended. Outside of
all of them nothing may fail. Strangers, clients that go away, deadlines and short stops are no disturbance.
"""
import dataclasses
import re
import threading

GRACE = 3.0     # seconds after the repair: pairs and streams are rebuilt
PATIENCE = 20.0  # seconds without any disturbance that a request may take; machines are busy
LONGEST = 110.0  # whatever happens
LATE = 5.0       # of a deadline's error
MAY_FAIL = {"UNAVAILABLE", "ABORTED", "DATA_LOSS", "RESOURCE_EXHAUSTED"}


@dataclasses.dataclass
class Disturbance:
    slot: str
    kind: str
    began: float
    ended: float = float("inf")

    def overlap(self, began, ended):
        return min(ended, self.ended + GRACE) - max(began, self.began)


class Disturbances:
    def __init__(self):
        self._all = []
        self._lock = threading.Lock()

    def begin(self, slot, kind, now):
        with self._lock:
            self._all.append(Disturbance(slot, kind, now))
            return self._all[-1]

    def during(self, began, ended):
        with self._lock:
            return [d for d in self._all if d.overlap(began, ended) > 0]

    def last_end(self):
        with self._lock:
            return max((d.ended for d in self._all), default=0.0)

    def forget(self, before):
        """Those that ended long before."""
        with self._lock:
            self._all = [d for d in self._all if d.ended + GRACE > before]


def standstill(disturbances, began, ended):
    """Seconds of the span in which something was stopped or away."""
    spans = sorted((max(began, d.began), min(ended, d.ended + GRACE)) for d in disturbances
                   if not d.kind.startswith("fault"))
    total, upto = 0.0, began
    for a, b in spans:
        total += max(0.0, b - max(a, upto))
        upto = max(upto, b)
    return total


def differs(seen, alone):
    """Of an answer that came to its end."""
    for i, (got, want) in enumerate(zip(seen.choices, alone.choices, strict=True)):
        if seen.way != "grpc":
            want = dataclasses.replace(want, tokens=(), top=())
        if got != want:
            return f"choice {i}: {got} is not {want}"
    if seen.usage and seen.usage[1] != alone.usage[1]:
        return f"usage {seen.usage} is not {alone.usage}"
    return ""


def moved_for(seen, disturbances):
    """Seconds that a request took while nothing stood still."""
    return seen.ended - seen.began - standstill(disturbances, seen.began, seen.ended)


def judge(seen, alone, disturbances):
    """Empty, or what is wrong. `disturbances`: those during it."""
    took = seen.ended - seen.began
    if took > LONGEST or moved_for(seen, disturbances) > PATIENCE:
        return f"took {took:.1f} s, of which nothing stood still for {moved_for(seen, disturbances):.1f} s"
    if seen.code == "OK" and seen.whole():
        return differs(seen, alone)
    for i, (got, want) in enumerate(zip(seen.choices, alone.choices, strict=True)):
        if seen.way != "grpc":
            want = dataclasses.replace(want, tokens=(), top=())
        if not got.begins(want):
            return f"{seen.code}, and choice {i}: {got} does not begin {want}"
    if seen.code == "OK":
        return "" if seen.left else "ended without an error and without an end"
    return _unfit_error(seen, disturbances, took)


def _unfit_error(seen, disturbances, took):
    said = f"{seen.code}: {seen.detail}"
    if seen.code == "CANCELLED":
        # A router that is told to end cuts off after a second what it could not say good-bye to.
        cut_off = any(d.slot == "router" and d.kind == "terminate" for d in disturbances)
        return "" if seen.left or cut_off else f"{said}, and nobody cancelled it"
    if seen.code == "DEADLINE_EXCEEDED":
        if not seen.timeout_ms:
            return f"{said}, without a deadline"
        # Only a router that stands still may be late.
        late = took - seen.timeout_ms / 1000 - standstill([d for d in disturbances if d.slot == "router"], seen.began,
                                                          seen.ended)
        if late > LATE:
            return f"{said}, {late:.1f} s late"
        return f"{said}, {-late:.3f} s early" if took < seen.timeout_ms / 1000 - 0.02 else ""
    if seen.code not in MAY_FAIL:
        return f"{said}, which is no class for it"
    # Requests move to other workers, and where a role is missing the other one does both: only what becomes of the router
    # reaches its clients, and a moment in which nobody is there at all.
    if any(d.slot == "router" for d in disturbances) or seen.left:
        return ""
    if seen.code != "UNAVAILABLE" or not disturbances:
        return f"{said}, though the router was well"
    return "" if "alive" in seen.detail or seen.way != "grpc" else f"{said}, though the router was well"


# ---- logs ----

_DEADLY = re.compile(r"Check failed|\w+Sanitizer|runtime error:|^\*\*\* |terminate called|pure virtual|^F\d{8} ", re.M)
_ERROR = re.compile(r"^E\d{8} .*$", re.M)


def bad_lines(text, allowed=()):
    """`allowed`: patterns of errors that what was done explains."""
    bad = [line for line in text.splitlines() if _DEADLY.search(line)]
    return bad + [line for line in _ERROR.findall(text) if not any(re.search(a, line) for a in allowed)]
