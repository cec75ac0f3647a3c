"""What the router costs: processor time per request and per token that it relays, and the time that it adds.

  bench/router/cost.py [--requests 2000] [--tokens 64] [--clients 16] [--json FILE]

One worker of role both with the tiny model behind one router. Processor time is that of the router's process over a run of
requests of 1 token and one of `tokens` tokens, clients and worker being other processes. The added time is that of a request of
one token through the router less that of the same request put straight on the worker's Work stream, and beside it the
time of a bare gRPC call on the same connection (a health check of the router), all in turns, one at a time.
"""
import argparse
import json
import os
import pathlib
import queue
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("SLUICE_BUILD", str(ROOT / "build"))
import grpc  # noqa: E402  pylint: disable=wrong-import-position
from cluster import Cluster  # noqa: E402  pylint: disable=wrong-import-position
from sluice_client import Client  # noqa: E402  pylint: disable=wrong-import-position

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(cluster, requests, tokens, clients):
    """Processor seconds of the router."""
    left = iter(range(requests))
    lock = threading.Lock()

    def ask():
        client = Client(cluster.address, like=cluster.client)
        while True:
            with lock:
                if next(left, None) is None:
                    break
            client.generate([5] * 20, max_tokens=tokens, ignore_eos=True)
        client.close()
    began = cpu_seconds(cluster.router.process.pid)
    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return cpu_seconds(cluster.router.process.pid) - began


class Straight:
    """A client that is its own router: requests of one token on a worker's Work stream."""

    def __init__(self, cluster):
        worker = cluster.client.state().workers[0]
        from google.protobuf import descriptor_pool, message_factory  # pylint: disable=import-outside-toplevel
        from grpc_reflection.v1alpha.proto_reflection_descriptor_database import \
            ProtoReflectionDescriptorDatabase  # pylint: disable=import-outside-toplevel
        self.channel = grpc.insecure_channel(f"127.0.0.1:{worker.port}")
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.message = message_factory.GetMessageClass(pool.FindMessageTypeByName("sluice.v1.RouterMessage"))
        answer = message_factory.GetMessageClass(pool.FindMessageTypeByName("sluice.v1.WorkerMessage"))
        self.out = queue.Queue()
        self.count = 0
        hello = self.message()
        hello.hello.router_incarnation = 77
        hello.hello.worker_incarnation = worker.incarnation
        hello.hello.protocol_version = 1
        self.out.put(hello)
        self.stream = self.channel.stream_stream("/sluice.v1.Worker/Work", self.message.SerializeToString,
                                                 answer.FromString)(iter(self.out.get, None))
        next(self.stream)

    def ask(self):
        self.count += 1
        message = self.message()
        message.reserve.key.request_id = str(self.count)
        message.reserve.key.attempt = 1
        sequence = message.reserve.sequence
        sequence.tokens.extend([5] * 20)
        sequence.num_prompt_tokens = 20
        sequence.sampling.max_tokens = 1
        message.reserve.compute_prompt = True
        self.out.put(message)
        for answer in self.stream:
            for event in answer.events:
                if event.WhichOneof("event") in ("failed", "refused"):
                    raise SystemExit(str(event))
                if event.WhichOneof("event") == "finished":
                    return

    def close(self):
        self.out.put(None)
        self.channel.close()


def times(calls, count):
    """Milliseconds of each call, in turns."""
    taken = {name: [] for name in calls}
    for _ in range(count):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            taken[name].append(1000 * (time.perf_counter() - began))
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    with Cluster(workers=1, worker_flags=["--threads", 1, "--kv-blocks", 600]) as cluster:
        client = cluster.client
        run(cluster, 200, 4, options.clients)
        one = run(cluster, options.requests, 1, options.clients)
        many = run(cluster, options.requests, options.tokens, options.clients)
        straight = Straight(cluster)
        bare = client.channel.unary_unary("/grpc.health.v1.Health/Check")
        taken = times({"bare gRPC call": lambda: bare(b""), "straight to the worker": straight.ask,
                       "through the router": lambda: client.generate([5] * 20, max_tokens=1, ignore_eos=True)}, 600)
        straight.close()
    added = [r - s for r, s in zip(taken["through the router"], taken["straight to the worker"])]
    out = {"router_cpu_us_per_request_of_1_token": 1e6 * one / options.requests,
           "router_cpu_us_per_token": 1e6 * (many - one) / options.requests / (options.tokens - 1),
           "added_ms_p50": statistics.median(added),
           "ms_p50": {name: statistics.median(values) for name, values in taken.items()},
           "ms_p90": {name: statistics.quantiles(values, n=10)[8] for name, values in taken.items()},
           "requests": options.requests, "tokens": options.tokens, "clients": options.clients}
    print(json.dumps(out, indent=1))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
