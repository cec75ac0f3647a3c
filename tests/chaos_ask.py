"""Requests of a chaos run, and what came of them: every token, log-probability and the class of the end.

Lengths lie around the borders of blocks and up to what the longest prompt may be; many prompts begin alike, so that
prefix caches hit; greedy and sampled, one and several choices, stops, log-probabilities.
"""
import dataclasses
import re

import grpc

from soak_ask import TIMEOUT, Ask, make_ask
from sluice_client import Answer, Client

BLOCK = 16
BAD_VALUE = "Cannot invoke RPC"  # of a channel that was closed


@dataclasses.dataclass(frozen=True)
class Choice:
    tokens: tuple = ()    # empty over HTTP, which tells none
    logprobs: tuple = ()
    top: tuple = ()       # empty over HTTP
    text: str = ""
    finish: str = ""      # empty: it did not come to its end

    def begins(self, whole):
        return (whole.tokens[:len(self.tokens)] == self.tokens and whole.text.startswith(self.text)
                and whole.logprobs[:len(self.logprobs)] == self.logprobs and whole.top[:len(self.top)] == self.top)


@dataclasses.dataclass
class Seen:
    """Of one try."""
    choices: list = dataclasses.field(default_factory=list)
    usage: tuple = ()     # (prompt tokens, completion tokens); empty: it did not come
    code: str = "OK"      # as gRPC names it
    detail: str = ""
    way: str = "grpc"
    began: float = 0.0
    ended: float = 0.0
    timeout_ms: int = 0   # asked for; 0: none
    left: bool = False    # the client went away, or was about to
    moves: int = 0        # to other workers, as far as it was told (gRPC tells)

    def whole(self):
        return all(c.finish for c in self.choices)


def make_pool(rng, count, longest, vocab):
    shared = [[rng.randrange(3, vocab) for _ in range(16 * BLOCK)] for _ in range(3)]
    lengths = [b * BLOCK + d for b in (1, 2, 3, 4, 8, 16) for d in (-1, 0, 1)] + [1, 700, longest - 1, longest]
    pool = []
    for i in range(count):
        ask = make_ask(rng, longest, vocab)
        if i % 4 != 3:  # the others are as they are: texts and tokens of any length
            length = lengths[i % len(lengths)]
            begin = rng.choice(shared)[:BLOCK * rng.randrange(0, 17)]
            own = [rng.randrange(3, vocab) for _ in range(length)]
            ask = Ask((begin + own)[:max(1, longest)], ask.fields)
        fields = ask.fields
        fields["ignore_eos"] = rng.random() < 0.8
        if rng.random() < 0.2:
            fields |= {"n": rng.randrange(2, 4), "temperature": rng.uniform(0.5, 1.2)}
        pool.append(ask)
    return pool


def by_grpc(client, ask, timeout_ms=0, cancel=None, close_channel=False):
    """`close_channel`: going away is the end of the connection, not of the call alone."""
    answer, seen = Answer(), Seen(timeout_ms=timeout_ms)
    own = Client(client.address, like=client) if close_channel else None
    try:
        fields = {**ask.fields, "timeout_ms": timeout_ms} if timeout_ms else ask.fields
        call = (own or client).stream(ask.prompt, TIMEOUT, **fields)
        if cancel:
            cancel.watch(own.channel.close if own else call.cancel)
        for response in call:
            answer.add(response)
            if cancel:
                cancel.piece()
    except grpc.RpcError as error:
        seen.code, seen.detail = error.code().name, error.details() or ""
    except ValueError as error:
        if not (own and cancel and cancel.done and BAD_VALUE in str(error)):
            raise
        seen.code = "CANCELLED"
    finally:
        if cancel:
            cancel.over()
        if own:
            own.close()
    seen.choices = [_choice(answer.choice(i)) for i in range(ask.fields.get("n", 1))]
    if answer.timing:
        seen.moves = answer.timing.moves
    if answer.usage:
        seen.usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    return seen


def _choice(answer):
    return Choice(tuple(answer.token_ids), tuple(answer.logprobs), tuple(map(tuple, answer.top)), answer.text,
                  {0: ""}.get(answer.finish_reason, str(answer.finish_reason)))


def by_http(connection, ask, stream, cancel=None):
    """Only for one choice."""
    got = connection.ask(ask, stream, cancel)
    code = class_of(got.error) if got.error else "CANCELLED" if not got.finish and cancel and cancel.done else "OK"
    finish = {"stop": "1", "length": "2"}.get(got.finish, got.finish or "")
    return Seen([Choice((), tuple(got.logprobs), (), got.text, finish)], () if got.tokens < 0 else (None, got.tokens), code,
                got.error, "sse" if stream else "http")


def class_of(error):
    """gRPC's name for what HTTP said: it has one number for all that went wrong inside."""
    status = re.match(r"(\d{3}): ", error)
    if status and status.group(1) in ("503", "408", "429", "400"):
        return {"503": "UNAVAILABLE", "408": "DEADLINE_EXCEEDED", "429": "RESOURCE_EXHAUSTED",
                "400": "INVALID_ARGUMENT"}[status.group(1)]
    for code, name in (("unavailable", "UNAVAILABLE"), ("timeout", "DEADLINE_EXCEEDED"),
                       ("rate_limit_exceeded", "RESOURCE_EXHAUSTED")):
        if f"'code': '{code}'" in error:
            return name
    if status or error.startswith("{"):
        return "DATA_LOSS" if "checksum" in error else "ABORTED" if "worker" in error else "INTERNAL"
    return "UNAVAILABLE"  # the connection broke
