"""A client of the public API that knows no generated code: it learns the messages by gRPC reflection."""
import dataclasses
import threading
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

STOP, LENGTH = 1, 2  # FinishReason
ACTIVE, SUSPECT, DRAINING, GONE = 1, 2, 3, 4  # WorkerState

_SAMPLING_SCALARS = {
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
    "logprobs", "prompt_logprobs", "min_tokens", "max_tokens", "ignore_eos", "n"}


@dataclasses.dataclass
class Answer:
    """Of one choice; that of choice 0 has the request's fields and, by choice(i), the other ones."""
    prompt_ids: list = dataclasses.field(default_factory=list)
    text: str = ""
    token_ids: list = dataclasses.field(default_factory=list)
    logprobs: list = dataclasses.field(default_factory=list)  # of the chosen tokens
    top: list = dataclasses.field(default_factory=list)       # [(id, logprob), ...] per token
    prompt_logprobs: list = dataclasses.field(default_factory=list)  # of prompt_ids[1:]
    prompt_top: list = dataclasses.field(default_factory=list)
    finish_reason: int = 0
    usage: object = None
    timing: object = None
    seed: int = 0
    responses: int = 0  # that carried text or tokens
    others: dict = dataclasses.field(default_factory=dict)

    def choice(self, index):
        return self if index == 0 else self.others.setdefault(index, Answer())

    def all_choices(self):
        return [self.choice(i) for i in range(1 + len(self.others))]

    def add(self, response):
        if response.HasField("prompt"):
            # Those after the first carry further log-probabilities only.
            self.prompt_ids += response.prompt.token_ids
            self.seed = response.prompt.seed or self.seed
            for entry in response.prompt.logprobs:
                assert not self.token_ids, "the prompt's log-probabilities come before the first token"
                assert entry.sampled.token_id == self.prompt_ids[1 + len(self.prompt_logprobs)]
                self.prompt_logprobs.append(entry.sampled.logprob)
                self.prompt_top.append([(t.token_id, t.logprob) for t in entry.top])
        if response.HasField("usage"):
            self.usage = response.usage
        if response.HasField("timing"):
            self.timing = response.timing
        for delta in response.choices:
            self.choice(delta.index).add_delta(delta)

    def add_delta(self, delta):
        self.responses += 1
        self.text += delta.text
        self.token_ids += delta.token_ids
        for entry in delta.logprobs:
            assert entry.sampled.token_id in delta.token_ids
            self.logprobs.append(entry.sampled.logprob)
            self.top.append([(t.token_id, t.logprob) for t in entry.top])
        self.finish_reason = delta.finish_reason or self.finish_reason


class Client:
    """`like`: another client of such a server, whose messages it takes over without asking for them. `key`: of the API,
    where the router asks for one."""

    def __init__(self, address, like=None, key=None):
        self.address = address
        self._metadata = [("authorization", f"Bearer {key}")] if key else None
        self.channel = grpc.insecure_channel(address, options=[
            ("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            # A test that restarts a server must not wait for a client's back-off.
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)])
        self._pool = like._pool if like else descriptor_pool.DescriptorPool(
            ProtoReflectionDescriptorDatabase(self.channel))
        self.GenerateRequest, self._generate = self._method("Inference", "Generate", stream=True)
        self.GetStateRequest, self._get_state = self._method("Cluster", "GetState", stream=False)
        self.ListRequestsRequest, self._list_requests = self._method("Cluster", "ListRequests", stream=False)
        self.raw_generate = self.channel.unary_stream(
            "/sluice.v1.Inference/Generate", request_serializer=lambda data: data,
            response_deserializer=lambda data: data)

    def _method(self, service, name, stream):
        method = self._pool.FindServiceByName(f"sluice.v1.{service}").FindMethodByName(name)
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        make = self.channel.unary_stream if stream else self.channel.unary_unary
        return request, make(f"/sluice.v1.{service}/{name}", request_serializer=request.SerializeToString,
                             response_deserializer=response.FromString)

    def request(self, prompt=None, **fields):
        """`prompt`: text or token ids; other names are fields of the sampling parameters or of the request."""
        request = self.GenerateRequest()
        if isinstance(prompt, str):
            request.text = prompt
        elif prompt is not None:
            request.token_ids.SetInParent()
            request.token_ids.ids.extend(prompt)
        for name, value in fields.items():
            if name in _SAMPLING_SCALARS:
                setattr(request.sampling, name, value)
            elif name in ("stop", "stop_token_ids"):
                getattr(request.sampling, name).extend(value)
            elif name == "logit_bias":
                for token, bias in value.items():
                    request.sampling.logit_bias[token] = bias
            else:
                setattr(request, name, value)
        return request

    def stream(self, prompt=None, timeout=120, **fields):
        """The running call: iterate over it, cancel() it."""
        return self._generate(self.request(prompt, **fields), timeout=timeout, metadata=self._metadata)

    def generate(self, prompt=None, timeout=120, **fields):
        answer = Answer()
        for response in self.stream(prompt, timeout, **fields):
            answer.add(response)
        return answer

    def state(self, timeout=5):
        return self._get_state(self.GetStateRequest(), timeout=timeout, wait_for_ready=True, metadata=self._metadata)

    def requests(self, limit=0, timeout=5):
        """Those that run and the last ones that ended, the newest first."""
        return self._list_requests(self.ListRequestsRequest(limit=limit), timeout=timeout, metadata=self._metadata)

    def close(self):
        self.channel.close()


class Background:
    """A call that is read on a thread of its own; what it got and how it ended can be looked at meanwhile."""

    def __init__(self, client, prompt, **fields):
        self.answer = Answer()
        self.error = None
        self.ended = None  # time.monotonic() of it
        self.arrivals = []  # time.monotonic() of each response with tokens of choice 0
        self.done = threading.Event()
        self.call = client.stream(prompt, **fields)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            for response in self.call:
                self.answer.add(response)
                if any(delta.index == 0 and delta.token_ids for delta in response.choices):
                    self.arrivals.append(time.monotonic())
        except grpc.RpcError as error:
            self.error = error
        self.ended = time.monotonic()
        self.done.set()

    def cancel(self):
        self.call.cancel()

    def join(self, timeout=60):
        if not self.done.wait(timeout):
            raise AssertionError(f"the call did not end within {timeout} s")
        return self.answer
