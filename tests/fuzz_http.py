"""Fuzzes the HTTP API of a live cluster (tiny model, 1 prefill + 1 decode worker).

    python3 tests/fuzz_http.py [--seconds 600] [--seed N]

Half of the time schemathesis, from the router's own OpenAPI file (`pip install schemathesis`; without it that half is left
out, with a line that says so); half of the time bytes: real requests that are cut, flipped, doubled, spliced, sent in pieces,
over connections that may close at any moment. What must hold: no process ends, no answer is a 5xx but 503, and at the end all
KV blocks are free and the cluster answers. Exit code 1 says that something did not.
"""
import argparse
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, wait_until

CHAT = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": %s}'
BODIES = [b'{"prompt": "Hello", "max_tokens": 4, "stop": ["x"], "logit_bias": {"5": 1}, "stream": %s}',
          b'{"prompt": ["a", [1, 2]], "max_tokens": 3, "n": 2, "logprobs": 2, "stream": %s}',
          b'{"prompt": [[1, 2], [3]], "max_tokens": 3, "echo": true, "stream": %s}', CHAT]
PATHS = [b"/v1/completions", b"/v1/chat/completions", b"/tokenize", b"/detokenize", b"/v1/models", b"/v1/models/x%41",
         b"/health/ready", b"/metrics", b"/openapi.json", b"/", b"/version?x=1"]
HEADERS = [b"", b"Expect: 100-continue\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n",
           b"X-Request-Id: a\r\n", b"X-Sluice-Priority: 5\r\n", b"Origin: http://x\r\n", b"Authorization: Bearer x\r\n",
           b"Connection: close\r\n", b"Upgrade: h2c\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n"]
SPLICES = [b"\r\n", b"\n\n", b"\x00", b"\xff\xfe", b'"', b"{", b"[" * 50, b"1e999", b"-1", b"null", b"%00", b"\\ud800", b" HTTP/1.1",
           b"A" * 5000, b"99999999999999999999", b"true", b"0\r\n\r\n"]


def request(rng):
    body = rng.choice(BODIES) % rng.choice([b"true", b"false"])
    method = rng.choice([b"POST", b"POST", b"POST", b"GET", b"HEAD", b"OPTIONS", b"PUT", b"X"])
    head = method + b" " + rng.choice(PATHS) + b" HTTP/1." + rng.choice([b"1", b"1", b"0", b"2"]) + b"\r\nHost: x\r\n"
    head += b"".join(rng.choice(HEADERS) for _ in range(rng.randrange(3)))
    return head + b"Content-Length: %d\r\n\r\n" % (len(body) + rng.choice([0, 0, 0, -3, 7])) + body


def damaged(rng):
    data = bytearray(b"".join(request(rng) for _ in range(rng.randrange(1, 4))))
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del data[at:at + rng.randrange(1, 40)]
        elif kind == 1 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 2:
            data[at:at] = rng.choice(SPLICES)
        else:
            data[at:at] = data[rng.randrange(len(data)):][:rng.randrange(200)] if data else b""
        data = data or bytearray(b"x")
    return bytes(data)


def talk(rng, address):
    """One connection; the statuses that it got."""
    received = b""
    with socket.create_connection(address, timeout=30) as connection:
        data = damaged(rng)
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
        try:
            for begin, end in zip([0, *cuts], [*cuts, len(data)]):
                connection.sendall(data[begin:end])
            if rng.random() < 0.3:
                return []  # it vanishes
            connection.shutdown(socket.SHUT_WR)
            while select.select([connection], [], [], 20)[0]:
                part = connection.recv(65536)
                if not part:
                    break
                received += part
        except OSError:
            pass  # the router may close it at any moment
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3}) ", received)]


def fuzz_bytes(rng, address, until, alive):
    counts = {}
    while time.monotonic() < until:
        for code in talk(rng, address):
            counts[code] = counts.get(code, 0) + 1
        alive()
    print("bytes: answers by status:", dict(sorted(counts.items())), flush=True)
    return [code for code in counts if code >= 500 and code != 503]


def fuzz_schema(rng, url, until):
    program = shutil.which("st")
    if program is None:
        print("schemathesis is not installed: left out", flush=True)
        return []
    bad, cases = [], 0
    folder = tempfile.mkdtemp()  # it leaves a cache where it runs
    while time.monotonic() < until:
        run = subprocess.run([program, "run", f"{url}/openapi.json", "--checks", "not_a_server_error,content_type_conformance,"
                              "response_schema_conformance,status_code_conformance", "--max-examples", "100", "--seed",
                              str(rng.randrange(1 << 31)), "--warnings", "off"], cwd=folder, capture_output=True, text=True, check=False)
        found = re.search(r"(\d+) generated", run.stdout)
        cases += int(found.group(1)) if found else 0
        if run.returncode != 0:
            print(run.stdout[-6000:], run.stderr[-2000:], flush=True)
            bad.append("schemathesis")
            break
    shutil.rmtree(folder)
    print(f"schemathesis: {cases} cases", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    with Cluster(workers=0, prefill=1, decode=1) as cluster:
        host, port = cluster.router.fields["http"].rsplit(":", 1)
        baseline = cluster.blocks_free()

        def alive():
            for server in [cluster.router, *cluster.workers]:
                assert server.process.poll() is None, server.text()[-4000:]

        begin = time.monotonic()
        bad = fuzz_bytes(rng, (host, int(port)), begin + args.seconds / 2, alive)
        bad += fuzz_schema(rng, f"http://{host}:{port}", begin + args.seconds)
        alive()
        wait_until(lambda: cluster.blocks_free() == baseline, 10, lambda: f"all free:\n{cluster.client.state()}")
        cluster.check_alive()
    print("found:" if bad else "nothing found", *bad)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
