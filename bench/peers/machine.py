"""What the comparisons share: where things lie, the machine's facts, one process at a time with its share of the cores."""
import atexit
import json
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("SLUICE_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sluice")
MODEL = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD") or ROOT / "build")
# What decides a kernel's path.
FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile", "amx_int8",
         "amx_bf16")


class Failed(Exception):
    """With a message for the one who runs the script."""


def add_arguments(parser):
    parser.add_argument("--model", type=pathlib.Path, default=MODEL, help="GGUF file (default: %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, help="our build (default: %(default)s)")
    parser.add_argument("--peer", type=pathlib.Path, default=CACHE / "peers/llama.cpp/bin",
                        help="llama.cpp's programs, of bench/peers/install (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, help="write OUT.md and OUT.json, too")


def program(folder, name):
    path = folder / name
    if not os.access(path, os.X_OK):
        makers = {"llama": "bench/peers/install", "vllm": "bench/peers/install --vllm", "python": "bench/peers/install --vllm"}
        maker = makers.get(name.partition("-")[0], f"ninja -C build {name}")
        raise Failed(f"no program at {path}; {maker} makes it")
    return path


def take_priority():
    """Moves this session to the front of the scheduler until the script ends, where that is allowed; says what it got."""
    group = pathlib.Path("/proc/self/autogroup")
    try:
        before = group.read_text(encoding="ascii").split()[-1]
        group.write_text("-19", encoding="ascii")
    except OSError:
        return "none"
    Rivals.ours.add(Rivals.group("self")[0])
    atexit.register(group.write_text, before, encoding="ascii")
    return "session at nice -19"


class Rivals:
    """Watches, while it is entered, for others at a raised priority: work at the usual one hardly takes the cores from
    these runs, but theirs does. `share` is the part of the time in which some of them ran."""

    ours = set()  # scheduling groups

    def __init__(self):
        self.seen, self.samples, self.over = 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    @staticmethod
    def group(pid):
        name, _, nice = pathlib.Path(f"/proc/{pid}/autogroup").read_text(encoding="ascii").split()
        return name, int(nice)

    @classmethod
    def run_now(cls):
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                if path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] != "R":
                    continue
                name, nice = cls.group(path.parent.name)
            except (OSError, ValueError):  # it has ended, or there are no such groups
                continue
            if nice < 0 and name not in cls.ours:
                return True
        return False

    @classmethod
    def wait_until_gone(cls, seconds):
        """Until none ran for two seconds, at most `seconds`."""
        calm, ends = 0, time.monotonic() + seconds
        while calm < 10 and time.monotonic() < ends:
            calm = 0 if cls.run_now() else calm + 1
            time.sleep(0.2)

    def watch(self):
        while not self.over.wait(0.3):
            self.seen, self.samples = self.seen + self.run_now(), self.samples + 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    @property
    def share(self):
        return round(self.seen / max(self.samples, 1), 2)


def load():
    return float(pathlib.Path("/proc/loadavg").read_text(encoding="ascii").split()[0])


def commit():
    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+changes" if git("status", "--porcelain") else "")


def facts():
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    info = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(info.get("flags", "").split())
    memory = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").split()[1]
    return {
        "cpu": f"{info.get('vendor_id')} family {info.get('cpu family')} model {info.get('model')}, "
               f"{info.get('model name')}",
        "mhz": info.get("cpu MHz"), "cores": os.cpu_count(), "flags": [f for f in FLAGS if f in flags],
        "memory_gib": round(int(memory) / 2**20, 1), "kernel": platform.release(), "sluice": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def peer_version(folder):
    path = folder.parent / "version"
    return path.read_text(encoding="ascii").strip() if path.exists() else "unknown"


def headline(result, more):
    facts = result["facts"]
    return (f"{facts['cpu']}, {facts['cores']} cores ({', '.join(facts['flags'])}); {result['model']}; {more}, priority: "
            f"{result['priority']}; sluice {facts['sluice']}, llama.cpp {result['peer_version']}; {facts['date']}")


def write(out, result, text):
    """OUT.json and OUT.md, where an OUT was given."""
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(text, encoding="utf-8")


def waited(pid):
    """Of each thread: nanoseconds on a core, and nanoseconds that it could have run but had none."""
    times = {}
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            on_core, without, _ = path.read_text(encoding="ascii").split()
        except (OSError, ValueError):  # it has ended
            continue
        times[path.parent.name] = (int(on_core), int(without))
    return times


def share_waited(times):
    on_core, without = (sum(values) for values in zip(*times.values())) if times else (0, 0)
    return without / max(on_core + without, 1)


def run_once(command, give_up_at):
    """Output, None if it was given up because the process had waited for more than `give_up_at`; and how it fared."""
    before, began, times, out, err = load(), time.monotonic(), {}, None, ""
    with subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        try:
            while out is None:
                times.update(waited(process.pid))
                if time.monotonic() - began > 3 and share_waited(times) > give_up_at:
                    break
                try:
                    out, err = process.communicate(timeout=0.1)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            if process.poll() is None:
                process.kill()
    if out is not None and process.returncode != 0:
        last = "\n".join(err.strip().splitlines()[-5:])
        raise Failed(f"{' '.join(map(str, command))}\nended with {process.returncode}:\n{last}")
    return out, {"wall_s": round(time.monotonic() - began, 2), "load": before, "waited": round(share_waited(times), 4)}


def run(command, max_waited, tries):
    """Standard output of a process, and how it fared. `waited` is the share of its threads' time in which others had its
    cores: where that is too much it runs again, up to `tries` times in all, the last time to the end whatever happens."""
    for tried in range(1, tries + 1):
        Rivals.wait_until_gone(120)
        out, how = run_once(command, 1.5 * max_waited if tried < tries else 1.0)
        how["tries"] = tried
        print(f"  {pathlib.Path(command[0]).name}: {'given up, ' if out is None else ''}{how}", file=sys.stderr, flush=True)
        if out is not None and (how["waited"] <= max_waited or tried == tries):
            return out, how
    raise AssertionError("the last try is never given up")
