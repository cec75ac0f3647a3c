"""What chaos does to a cluster, and when: pure, a function of the seed and of the numbers of processes.

A run is rounds, each with a cluster of its own; a round is phases. Each process of the cluster is a slot ("P0", "D1",
"router") whose events follow each other; slots do not wait for each other, so faults overlap. The slot "strangers"
is everybody who has no business with the cluster.
"""
import dataclasses
import random

SHORT = (0.2, 1.0)  # seconds; a stop that nobody may notice
CALM = 5.0          # seconds at the beginning of a phase with nothing that a client may notice
LONG = (3.0, 15.0)  # one that may end pairs, leases and memberships
ROUTER_LONG = (3.0, 8.0)  # one that ends all leases

_STOPS = ("short stop", "long stop")
PIECE_FAULTS = ("corrupt", "lose", "stall", "fail")
_WORKER = ("kill", "kill rank", "terminate", "short stop", "long stop")
_PREFILL = _WORKER + tuple(f"fault {f}" for f in PIECE_FAULTS)
_STEADY = _STOPS
_ROUTER = ("kill", "terminate", *_STOPS)
STRAYS = ("random", "preface", "hold", "reset", "trickle", "message")
_AMBUSH = "ambush"  # of the ports that a pair opens for a moment
STRANGERS = STRAYS + (_AMBUSH,)


@dataclasses.dataclass(frozen=True)
class Event:
    at: float      # seconds after the beginning of the phase
    slot: str
    kind: str
    seconds: float = 0.0  # of a stop, or until the restart
    fault: str = ""       # the plan that a prefill worker is restarted with
    which: int = 0        # draws one of several (a rank, a port)
    target: str = ""      # slot that strangers go to


@dataclasses.dataclass
class Round:
    number: int
    flags: dict   # by slot: the flags that its processes always have
    steady: set   # slots whose processes must live to the end
    phases: list  # lists of events, in order of time


@dataclasses.dataclass(frozen=True)
class Size:
    prefill: int = 2
    decode: int = 2
    tp: int = 2          # of half of the workers
    phase: float = 20.0  # seconds
    phases: int = 5      # of a round


def kinds(size):
    """All (what, kind) that a run must have had."""
    found = {("prefill", k) for k in _PREFILL if k != "kill rank" or size.tp > 1}
    found |= {("decode", k) for k in _WORKER if k != "kill rank" or size.tp > 1}
    return found | {("router", k) for k in _ROUTER} | {("strangers", k) for k in STRANGERS}


class _Deck:
    """Draws without replacement, so that no kind is left out for long."""

    def __init__(self, rng, cards):
        self.rng, self.cards, self.left = rng, list(cards), []

    def draw(self):
        if not self.left:
            self.left = self.rng.sample(self.cards, len(self.cards))
        return self.left.pop()


def role_of(slot):
    return {"P": "prefill", "D": "decode"}.get(slot[0], slot)


def make_round(seed, number, size):
    rng = random.Random(f"{seed} round {number}")
    workers = [f"P{i}" for i in range(size.prefill)] + [f"D{i}" for i in range(size.decode)]
    flags, steady = {}, set()
    for role, count in (("P", size.prefill), ("D", size.decode)):
        order = rng.sample(range(count), count)
        # In turns: one worker of each role lives on, or the router does, or nobody.
        if number % 3 == 0 and count > 1:
            steady.add(f"{role}{order[0]}")
        for place, i in enumerate(order):
            # The ones that may be killed have the ranks, so that ranks are killed too.
            tp = size.tp if place % 2 == 1 or count == 1 else 1
            channel = ("shm", "tcp")[(place + number) % 2] if role == "P" else "auto"
            flags[f"{role}{i}"] = ["--tp", tp, "--kv-channel", channel]
    if number % 3 == 1:
        steady.add("router")
    decks = {}
    for slot in workers:
        cards = _STEADY if slot in steady else _PREFILL if slot[0] == "P" else _WORKER
        if flags[slot][1] == 1:
            cards = [c for c in cards if c != "kill rank"]
        decks[slot] = _Deck(rng, cards)
    decks["router"] = _Deck(rng, _STOPS if "router" in steady else _ROUTER)
    decks["strangers"] = _Deck(rng, STRANGERS)
    phases = [_make_phase(rng, decks, workers, size) for _ in range(size.phases)]
    return Round(number, flags, steady, phases)


def _make_phase(rng, decks, workers, size):
    events = []
    for slot in [*workers, "router"]:
        events.append(_event(rng, slot, "short stop", rng.uniform(0.0, CALM - SHORT[1]), size.phase))
    for slot in workers:
        _worker_events(rng, decks[slot], slot, size.phase, events)
    events.append(_event(rng, "router", decks["router"].draw(), rng.uniform(CALM, 0.8 * size.phase), size.phase))
    at = rng.uniform(0, 1)
    while at < size.phase:
        kind = decks["strangers"].draw()
        target = "" if kind == _AMBUSH else rng.choice([*workers, "router"])
        events.append(Event(at, "strangers", kind, which=rng.randrange(1 << 30), target=target))
        at += rng.uniform(0.2, 1.0)
    return sorted(events, key=lambda e: e.at)


def _worker_events(rng, deck, slot, length, events):
    at, faulty = CALM + rng.uniform(0.0, 2.0), False
    while at < length - 1:
        event = _event(rng, slot, deck.draw(), at, length)
        events.append(event)
        restarted = event.kind in ("kill", "kill rank", "terminate")
        faulty = bool(event.fault) or (faulty and not restarted)
        at += event.seconds + (1.0 if restarted else 0.0) + rng.uniform(0.5, 3.0) + (3.0 if event.fault else 0.0)
    if faulty:
        events.append(Event(length, slot, "heal"))


def _event(rng, slot, kind, at, length):
    which = rng.randrange(1 << 30)
    if kind == "short stop":
        return Event(at, slot, kind, seconds=rng.uniform(*SHORT), which=which)
    if kind == "long stop":
        least, most = ROUTER_LONG if slot == "router" else LONG
        return Event(at, slot, kind, seconds=max(least, min(rng.uniform(least, most), length - at)), which=which)
    if kind.startswith("fault "):
        return Event(at, slot, kind, fault=_piece_faults(rng, kind.split()[1]), which=which)
    return Event(at, slot, kind, seconds=rng.choice([0.0, rng.uniform(0.0, 3.0)]), which=which)


def _piece_faults(rng, kind):
    """One of the kind surely, of few pieces so that it is reached; often others after it."""
    piece = rng.randrange(0, 8)
    plan = [f"{kind}={piece}"]
    for _ in range(rng.randrange(0, 3)):
        piece += rng.randrange(1, 30)
        plan.append(f"{rng.choice(PIECE_FAULTS)}={piece}")
    return ",".join(plan)
