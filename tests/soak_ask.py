"""Requests of a soak, and the three ways to ask for them: gRPC, HTTP as one JSON object, HTTP as server-sent events.

Whatever the way, the answer has the same text, log-probabilities and end, bit for bit.
"""
import dataclasses
import http.client
import json
import math
import socket
import struct
import threading

import grpc

from sluice_client import STOP, Answer

WAYS = ("grpc", "http", "sse")
TIMEOUT = 240  # seconds; an answer that takes longer is an error
WORDS = ("time light river stone house green paper window garden music winter letter bridge number sister market "
         "engine island shadow silver planet copper velvet thunder lantern harbor meadow canyon puzzle ribbon").split()


@dataclasses.dataclass
class Ask:
    prompt: object  # text or token ids
    fields: dict


def make_ask(rng, longest, vocab):
    """Prompts of 1 to `longest` tokens, as many short ones as long ones on a scale of logarithms."""
    length = round(math.exp(rng.uniform(0, math.log(longest))))
    if rng.random() < 0.5:
        prompt = [rng.randrange(3, vocab) for _ in range(length)]
    else:  # tokens are a word or a part of one
        prompt = ""
        while len(prompt) < length:
            prompt += rng.choice(WORDS) + " "
        prompt = prompt[:max(1, length)]
    fields = {"max_tokens": rng.choice([1, 1, 2, 3, rng.randrange(4, 65), 16, 64]), "temperature": 0.0,
              "logprobs": rng.choice([0, 0, 2]), "ignore_eos": rng.random() < 0.5, "seed": rng.randrange(1 << 40)}
    if rng.random() < 0.5:
        fields |= {"temperature": rng.uniform(0.3, 1.5), "top_p": rng.choice([1.0, 0.9]), "top_k": rng.choice([0, 40])}
    if rng.random() < 0.4:
        fields["stop"] = rng.sample([" the", ".", "\n", ",", "e", " a"], rng.randrange(1, 3))
    if rng.random() < 0.2:
        fields["stop_token_ids"] = [rng.randrange(3, vocab) for _ in range(20)]
    return Ask(prompt, fields)


@dataclasses.dataclass
class Got:
    """What came of one try; compared with the answer of the same request alone."""
    text: str = ""
    logprobs: list = dataclasses.field(default_factory=list)  # of the chosen tokens
    finish: str = ""  # empty: the answer did not come to its end
    tokens: int = -1  # as `usage` counts them
    error: str = ""

    @staticmethod
    def of(answer):
        return Got(answer.text, answer.logprobs, {0: "", STOP: "stop"}.get(answer.finish_reason, "length"),
                   answer.usage.completion_tokens if answer.usage else -1)

    def begins(self, whole):
        return whole.text.startswith(self.text) and whole.logprobs[:len(self.logprobs)] == self.logprobs


class Cancel:
    """When and how a client goes away. Plans: at once, after some pieces of the answer, after some time."""

    def __init__(self, rng):
        kind = rng.random()
        self.pieces = None if kind > 0.6 else 0 if kind < 0.2 else rng.randrange(1, 20)
        self.seconds = rng.expovariate(1.0) if self.pieces is None else None
        self.how = rng.choice(["close", "reset", "half"])
        self.done = False
        self._timer = None
        self._act = None

    def watch(self, act):
        """`act` ends the call; it may come from another thread, and before this returns."""
        self._act = act
        if self.pieces == 0:
            self.now()
        elif self.seconds is not None:
            self._timer = threading.Timer(self.seconds, self.now)
            self._timer.daemon = True
            self._timer.start()

    def piece(self):
        if self.pieces is not None and self.pieces > 0:
            self.pieces -= 1
            if self.pieces == 0:
                self.now()

    def now(self):
        self.done = True
        self._act()

    def over(self):
        if self._timer:
            self._timer.cancel()


def by_grpc(client, ask, cancel=None):
    answer = Answer()
    error = ""
    call = client.stream(ask.prompt, TIMEOUT, **ask.fields)
    try:
        if cancel:
            cancel.watch(call.cancel)
        for response in call:
            answer.add(response)
            if cancel:
                cancel.piece()
    except grpc.RpcError as e:
        if not (cancel and cancel.done and e.code() == grpc.StatusCode.CANCELLED):
            error = f"{e.code().name}: {e.details()}"
    finally:
        if cancel:
            cancel.over()
    got = Got.of(answer)
    got.error = error
    return got


class HttpConnection:
    """Keeps its connection as long as the server and the cancels leave it."""

    def __init__(self, address):
        self.address = address
        self.connection = None

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def ask(self, ask, stream, cancel=None):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT)
        body = {"prompt": ask.prompt, "stream": stream, **ask.fields}
        if stream:
            body["stream_options"] = {"include_usage": True}
        got = Got()
        try:
            self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            if cancel:
                cancel.watch(lambda s=self.connection.sock: leave(s, cancel.how))
            with self.connection.getresponse() as response:
                if response.status != 200:
                    got.error = f"{response.status}: {response.read().decode()}"
                elif stream:
                    self._read_events(response, got, cancel)
                else:
                    add(json.loads(response.read()), got)
        except (OSError, http.client.HTTPException, ValueError) as e:
            if not (cancel and cancel.done):
                got.error = f"{type(e).__name__}: {e}"
        finally:
            if cancel:
                cancel.over()
        if got.error or (cancel and cancel.done):
            if cancel and cancel.done:
                got.error = ""  # its own doing
            self.close()
        return got

    def _read_events(self, response, got, cancel):
        done = False
        for line in response:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                done = True
                continue
            add(json.loads(line[len(b"data: "):]), got)
            if cancel:
                cancel.piece()
        if not done and not got.error and not (cancel and cancel.done):
            got.error = "the stream ended without [DONE]"


def add(message, got):
    if "error" in message:
        got.error = str(message["error"])
        return
    for choice in message["choices"]:
        got.text += choice["text"]
        if choice["logprobs"]:
            got.logprobs += choice["logprobs"]["token_logprobs"]
        got.finish = choice["finish_reason"] or got.finish
    if message.get("usage"):
        got.tokens = message["usage"]["completion_tokens"]


def leave(sock, how):
    """What the client's end of a connection does; the reading end notices."""
    if sock is None:
        return
    try:
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_WR if how == "half" else socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already
