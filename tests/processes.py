"""What /proc tells about other processes: children, states, and where they listen."""
import os
import re
import socket
import struct


def _stat(pid):
    """The fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()
    except OSError:
        return None


def children(pid):
    """Processes that `pid` started, the oldest first."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = _stat(name)
        if fields and int(fields[1]) == pid:
            found.append(int(name))
    return sorted(found)


def state(pid):
    """One letter (R, S, D, T, Z); empty when it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def lives(pid):
    return state(pid) not in ("", "Z")


def _sockets(pid):
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue  # closed meanwhile
            if match:
                found.add(match.group(1))
    except OSError:
        pass  # it ended
    return found


def tcp_listeners(pid):
    """Ports where it listens, on whatever address."""
    own = _sockets(pid)
    return {port for inode, port in all_tcp_listeners().items() if inode in own}


def unix_listeners(pid):
    """Addresses as socket.connect() takes them; those that begin with a zero byte have no file."""
    own = _sockets(pid)
    return {address for inode, address in all_unix_listeners().items() if inode in own}


def owns(pid, inode):
    return inode in _sockets(pid)


_SOCK_DIAG = 4  # of netlink; /proc/net/tcp lists every old connection too, which takes milliseconds
_SOCK_DIAG_BY_FAMILY, _DUMP, _LISTEN = 20, 0x301, 1 << 10


def all_tcp_listeners():
    """Ports by inode, of all processes."""
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, _LISTEN)
            netlink.send(struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 0, 0) + request)
            while _read_listeners(netlink.recv(1 << 16), found):
                pass
    return found


def _read_listeners(data, found):
    """False at the end of the answer."""
    while data:
        length, kind = struct.unpack_from("=IH", data)
        if kind != _SOCK_DIAG_BY_FAMILY:
            return False
        # inet_diag_msg: four bytes, the socket's id (48), expiry, two queues, uid, inode
        found[str(struct.unpack_from("=I", data, 16 + 4 + 48 + 16)[0])] = struct.unpack_from(">H", data, 16 + 4)[0]
        data = data[(length + 3) & ~3:]
    return True


def all_unix_listeners():
    """Addresses by inode, of all processes."""
    found = {}
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as lines:
        for fields in map(str.split, list(lines)[1:]):
            if len(fields) > 7 and int(fields[3], 16) & 0x10000:
                found[fields[6]] = "\0" + fields[7][1:] if fields[7].startswith("@") else fields[7]
    return found
