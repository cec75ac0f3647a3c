"""A streaming client of OpenAI's completions API that measures: one connection a request, standard library only."""
import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass
class Answer:
    """Times in seconds of time.monotonic(); events are the stream's pieces of text."""
    scheduled: float
    events: list = field(default_factory=list)
    tokens: int = 0
    prompt_tokens: int = 0
    error: str = ""

    @property
    def ttft(self):
        return self.events[0] - self.scheduled if self.events else float("inf")

    @property
    def tpot(self):
        """Mean time per token after the first."""
        return (self.events[-1] - self.events[0]) / (self.tokens - 1) if self.events and self.tokens > 1 else 0.0

    @property
    def gaps(self):
        return [b - a for a, b in zip(self.events, self.events[1:])]


async def body_pieces(reader, headers):
    """The body as it comes, without the chunks' framing."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        while piece := await reader.read(1 << 16):
            yield piece
        return
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def events(reader, headers):
    """The `data:` of each server-sent event."""
    rest = b""
    async for piece in body_pieces(reader, headers):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


async def request(port, path, body=None):
    """Reader, writer, status and headers of a request; GET where there is no body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b"" if body is None else json.dumps(body).encode()
    writer.write((f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data)
    status = int((await reader.readline()).split()[1])
    headers = {}
    while (line := (await reader.readline()).decode().strip()):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip().lower()
    return reader, writer, status, headers


async def complete(port, prompt, max_tokens, scheduled=None, **fields):
    """Streams one completion to its end. Never raises but for cancellation: Answer.error says what went wrong."""
    answer = Answer(scheduled or time.monotonic())
    writer = None
    try:
        reader, writer, status, headers = await request(port, "/v1/completions", {
            "prompt": prompt, "max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": True, **fields})
        done = False
        if status != 200:
            answer.error = f"HTTP {status}"
        async for data in events(reader, headers):
            now = time.monotonic()
            if data == b"[DONE]":
                done = True
                break
            event = json.loads(data)
            if "error" in event:
                answer.error = str(event["error"])
                break
            if event.get("usage"):
                answer.tokens = event["usage"]["completion_tokens"]
                answer.prompt_tokens = event["usage"]["prompt_tokens"]
            if any(choice.get("text") for choice in event.get("choices", [])):
                answer.events.append(now)
        if not answer.error and not (done and answer.events and answer.tokens):
            answer.error = "the stream ended early"
    except (OSError, ValueError, KeyError, IndexError, asyncio.IncompleteReadError) as error:
        answer.error = answer.error or repr(error)
    finally:
        if writer is not None:
            writer.close()
    return answer
