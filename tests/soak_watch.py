"""Memory, files and threads of processes over time, and whether they stay where they are.

Memory is what a process has of its own: RssAnon + RssShmem. Pages of the mapped model file (RssFile) come and go as the
system likes. Flat means: the least-squares line through the second half of the samples rises by less than 1 % of its
mean, or 1 MiB, from the half to the end.
"""
import pathlib
import threading
import time


def sample(pid):
    """(KiB of its own, KiB of mapped files, open files, threads)."""
    folder = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())

    def kib(name):
        return int(status[name].split()[0])
    files = len(list((folder / "fd").iterdir()))
    return kib("RssAnon") + kib("RssShmem"), kib("RssFile"), files, int(status["Threads"])


def rise(points):
    """Of the least-squares line, from the first x to the last."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return slope * (points[-1][0] - points[0][0])


class Watch:
    def __init__(self, pids, period=0.5):
        """`pids`: by name."""
        self.pids = pids
        self.samples = {name: [] for name in pids}  # (seconds, KiB, KiB of files, files, threads)
        self._period = period
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while True:
            for name, pid in self.pids.items():
                try:
                    self.samples[name].append((time.monotonic() - self._began, *sample(pid)))
                except (OSError, KeyError):
                    pass  # it has died, and whoever runs the soak will say so
            if self._stop.wait(self._period):
                return

    def report(self):
        """By name: figures for people, and `flat`."""
        out = {}
        for name, samples in self.samples.items():
            if len(samples) < 4:
                raise AssertionError(f"{name}: {len(samples)} samples")
            half = samples[len(samples) // 2:]
            mean = sum(s[1] for s in half) / len(half)
            growth = rise([(s[0], s[1]) for s in half])
            out[name] = {
                "kib": [s[1] for s in samples[::max(1, len(samples) // 30)]], "kib_most": max(s[1] for s in samples),
                "rise_kib": round(growth, 1), "allowed_kib": round(max(1024, mean / 100), 1),
                "flat": growth < max(1024, mean / 100), "file_kib": samples[-1][2],
                "open_files": [samples[0][3], max(s[3] for s in samples), samples[-1][3]],
                "threads": [samples[0][4], max(s[4] for s in samples), samples[-1][4]]}
        return out
