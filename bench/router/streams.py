"""What many streams cost the router: memory and processor time per event, and clients that stop reading or vanish.

    python3 bench/router/streams.py [--streams 2000] [--slow 500] [--step-ms 200] [--tokens 100]

1. N streams at once over HTTP (server-sent events), one token a step each, from a worker that says a given text: the
   router's resident memory before, with all of them open, and after; its processor time per event.
2. Clients that send a request for a long answer and stop reading, or vanish half a second later, on a real tiny worker:
   the router's memory stays bounded by what it may hold for each, and afterwards every KV block is free.

The router's own numbers come from /proc; the load generator runs beside it and needs about one core.
"""
import argparse
import asyncio
import pathlib
import resource
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from cluster import BUILD, Cluster, Server, wait_until  # noqa: E402


def memory(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def processor(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def head(body):
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def read_stream(address, body, first):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(head(body))
    events, done = 0, False
    while not done:
        part = await reader.read(65536)
        if not part:
            break
        events += part.count(b"data: ")
        first.set()
        done = b"[DONE]" in part
    writer.close()
    return events, done


async def many(address, pid, streams, tokens):
    body = b'{"prompt": "a", "max_tokens": %d, "stream": true, "ignore_eos": true}' % tokens
    before, begin = memory(pid), processor(pid)
    firsts = [asyncio.Event() for _ in range(streams)]
    tasks = []
    for first in firsts:
        tasks.append(asyncio.create_task(read_stream(address, body, first)))
        await asyncio.sleep(0.0005)
    await asyncio.gather(*(first.wait() for first in firsts))
    at_once, opened, opened_at = memory(pid), processor(pid), time.monotonic()
    results = await asyncio.gather(*tasks)
    seconds, used = time.monotonic() - opened_at, processor(pid) - opened
    events = sum(events for events, _ in results)
    assert all(done for _, done in results), "a stream did not end"
    print(f"{streams} streams of {tokens} tokens: {events} events, {events / seconds:.0f}/s while all were open")
    print(f"  router: {before:.1f} MiB before, {at_once:.1f} MiB with all open ({(at_once - before) * 1024 / streams:.1f} KiB each), "
          f"{memory(pid):.1f} MiB after")
    print(f"  router: {(opened - begin) / streams * 1e6:.0f} us a stream to open, {used / events * 1e6:.1f} us of processor an event")


async def slow(address, count, vanish):
    """Clients that read nothing; half of them go away without a word after half a second."""
    body = b'{"prompt": "a", "max_tokens": 20000, "stream": true, "ignore_eos": true, "logprobs": 5}'
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(*address, limit=1024)
        writer.transport.pause_reading()
        writer.write(head(body))
        writers.append(writer)
    await asyncio.sleep(0.5)
    for writer in writers[:vanish]:
        writer.transport.abort()
    return writers[vanish:]


def watch_slow(count):
    worker_flags = ["--max-seqs", 128]
    with Cluster(workers=1, worker_flags=worker_flags) as cluster:
        host, port = cluster.router.fields["http"].rsplit(":", 1)
        pid, baseline = cluster.router.process.pid, cluster.blocks_free()
        cluster.check_alive()
        before, most = memory(pid), 0.0

        async def run():
            nonlocal most
            writers = await slow((host, int(port)), count, count // 2)
            for _ in range(240):
                most = max(most, memory(pid))
                state = cluster.client.state()
                if (state.queued, state.running) == (0, 0):
                    break
                await asyncio.sleep(0.25)
            for writer in writers:
                writer.transport.abort()

        asyncio.run(run())
        wait_until(lambda: cluster.blocks_free() == baseline, 10, lambda: f"all free:\n{cluster.client.state()}")
        cluster.check_alive()
        print(f"{count} clients that read nothing, half of which vanish: router {before:.1f} MiB before, {most:.1f} MiB at most, "
              f"{memory(pid):.1f} MiB after; {baseline} of {baseline} blocks free")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--slow", type=int, default=500)
    parser.add_argument("--step-ms", type=float, default=200)
    parser.add_argument("--tokens", type=int, default=100)
    args = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    cluster = Cluster(workers=0)
    with cluster:
        worker = Server([BUILD / "tests/scripted_worker", "--model", cluster.model, "--router-port", cluster.port, "--text",
                         "some words, ", "--step-ms", args.step_ms, "--max-running", args.streams],
                        cluster.folder / "scripted.log").wait_ready()
        cluster.wait_active(1)
        host, port = cluster.router.fields["http"].rsplit(":", 1)
        asyncio.run(many((host, int(port)), cluster.router.process.pid, args.streams, args.tokens))
        worker.end()
    watch_slow(args.slow)


if __name__ == "__main__":
    main()
