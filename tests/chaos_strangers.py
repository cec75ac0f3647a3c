"""Connections that have no business with the cluster, to any port of any process, and what they say."""
import random
import socket
import struct
import time

import grpc

import processes

_METHODS = ("/sluice.v1.Worker/Work", "/sluice.v1.Transfer/Link", "/sluice.v1.Registry/Announce",
            "/sluice.v1.Inference/Generate")


def visit(slot, kind, which):
    """Connects to a port of the slot's process. True: it was there, and heard us."""
    rng = random.Random(which)
    ports = sorted(processes.tcp_listeners(slot.server.process.pid))
    if not ports:
        return False
    port = rng.choice(ports)
    if kind == "message":
        return _message(port if rng.random() < 0.3 else slot.port, rng)
    try:
        sock = socket.create_connection(("127.0.0.1", port), timeout=5)
    except OSError:
        return False
    with sock:
        try:
            _talk(sock, kind, rng)
        except ConnectionError:
            pass  # it hung up on us, which is fine
    return True


def _talk(sock, kind, rng):
    noise = rng.randbytes(rng.choice([1, 3, 9, 24, 100, 5000, 70000]))
    if kind == "random":
        sock.sendall(noise)
        sock.settimeout(0.2)
        _drain(sock)
    elif kind == "preface":
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", len(noise))[1:] + noise)
        sock.settimeout(0.2)
        _drain(sock)
    elif kind == "hold":
        time.sleep(rng.uniform(0.2, 2.0))
    elif kind == "reset":
        sock.sendall(noise[:100])
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif kind == "trickle":
        for byte in noise[:20]:
            sock.sendall(bytes([byte]))
            time.sleep(0.03)


def _drain(sock):
    try:
        while sock.recv(65536):
            pass
    except OSError:
        pass


def _message(port, rng):
    """A stream of gRPC whose message is noise. Nobody may take it for one of ours."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.stream_stream(rng.choice(_METHODS))
        try:
            for _ in call(iter([rng.randbytes(rng.choice([0, 1, 2, 20, 300]))]), timeout=2):
                break
        except grpc.RpcError as error:
            return error.code() != grpc.StatusCode.UNAVAILABLE
        return True


def ambush(slots, which, seconds):
    """Waits for ports that the processes of the slots open for a new pair and is there first. Returns how many it
    reached."""
    rng, until, reached = random.Random(which), time.monotonic() + seconds, 0

    def listeners():
        return {**processes.all_tcp_listeners(), **processes.all_unix_listeners()}
    known = listeners()
    while time.monotonic() < until:
        new = {inode: address for inode, address in listeners().items() if inode not in known}
        for inode, address in new.items():
            known[inode] = address
            pids = [slot.server.process.pid for slot in slots if address != slot.port]
            if any(processes.owns(pid, inode) for pid in pids):
                reached += _surprise(address, rng)
        time.sleep(0.0005)
    return reached


def _surprise(address, rng):
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", address) if isinstance(address, int) else address)
        if rng.random() < 0.7:
            sock.sendall(rng.randbytes(rng.choice([1, 16, 24, 40, 4000])))
        time.sleep(rng.choice([0, 0, 0.5]))
        return 1
    except OSError:
        return 0
    finally:
        sock.close()
