"""Holds the dependency rule of docs/architecture.md, "The house".

Three checks over the source tree, no build needed:
  1. every #include between our folders is an allowed edge;
  2. every DEPS edge between our CMake libraries is an allowed edge;
  3. the pure cores include nothing of threads, clocks, IO, gRPC or CUDA.
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# box -> boxes it may use directly. A box is a folder; the most specific prefix of a path wins.
ALLOWED = {
    "proto": set(),
    "config": set(),
    "kernels": set(),
    "engine/files": {"kernels"},
    "engine/text": {"kernels", "engine/files"},
    "engine/block_hash": {"kernels"},
    "engine": {"kernels", "engine/files", "engine/text", "engine/block_hash"},
    "kvtransfer": {"kernels", "proto"},
    "worker": {"config", "kernels", "engine", "engine/files", "engine/block_hash", "kvtransfer", "proto"},
    "prefill_worker": {"kernels", "worker", "engine", "engine/files", "kvtransfer", "proto"},
    "decode_worker": {"kernels", "worker", "engine", "engine/files", "kvtransfer", "proto"},
    "router": {"config", "proto", "kernels", "engine/files", "engine/text", "engine/block_hash"},
    "simulation": {"router", "proto", "engine/block_hash"},
    "cli": {"proto", "engine/text", "simulation"},
}
# Tests may also use what makes their inputs.
TEST_EXTRA = {"engine/files"}
ANYTHING = ("tests", "bench")

# Pure classes: time and randomness come in as arguments.
PURE = [
    "engine/block_pool", "engine/chunk_pace", "engine/layer_groups", "engine/scheduler", "engine/sequence",
    "engine/sampler*", "engine/keyed_random",
    "engine/token_counts", "engine/sampling_params", "engine/deterministic_math", "engine/speculation/*",
    "engine/sequence_table", "engine/runner/commit", "engine/runner/step_inputs", "engine/block_hash", "engine/prefix_cache",
    "engine/text/*", "engine/text/jinja/*", "kvtransfer/lease_table", "kvtransfer/checksum", "kvtransfer/piece_copy", "kvtransfer/sender",
    "kvtransfer/receiver", "kvtransfer/piece_split", "kvtransfer/reshard_plan", "kvtransfer/flow_book", "kvtransfer/fingerprint", "worker/worker_core", "worker/request_table",
    "decode_worker/decode_role", "prefill_worker/prefill_role", "router/registry", "router/queue",
    "router/load_model", "router/policy", "router/request", "router/attempt", "router/answer", "router/timeline",
    "router/move_budget", "router/prefix_index", "router/prefix_book", "router/breaker", "router/step_time",
    "worker/prefix_feed", "worker/whole_answers", "router/core", "router/validate", "router/answer_stream",
    "proto/discovery/backoff", "proto/discovery/key_listing", "proto/discovery/leased_key", "proto/discovery/registry_address",
    "config/option_names", "config/print_options", "config/yaml_options", "cli/chat/conversation", "cli/top/frame",
    "cli/bench/arrivals", "cli/bench/goodput_search", "cli/bench/http_words", "cli/bench/plot", "cli/bench/report",
    "cli/bench/sse", "cli/bench/summary", "cli/bench/workload",
    "router/http/answer_json", "router/http/api_request", "router/http/chat_answer", "router/http/chat_request", "router/http/common_fields",
    "router/http/completion_answer", "router/http/completion_request", "router/http/error", "router/http/field_reader", "router/http/head",
    "router/http/info_bodies", "router/http/json_text", "router/http/json_value", "router/http/routes", "router/http/tool_calls",
    "router/metrics", "router/metric_families", "router/request_families", "router/worker_families", "router/flow_families",
    "router/request_log", "router/request_metrics", "router/histogram", "router/core_counters", "router/prompt_tokens",
]
IMPURE = re.compile(
    r"<(thread|mutex|condition_variable|future|chrono|fstream|iostream|filesystem|sys/\w+|unistd\.h|fcntl\.h)>|"
    r"grpcpp/|\.grpc\.pb\.h|cuda|nccl|absl/time/clock\.h|absl/synchronization|absl/random")
CUDA = re.compile(r"cuda_runtime|cublas|nccl\.h|cuda\.h|cuda_fp16|cuda_bf16")
CUDA_HOMES = ("kernels/cuda", "kvtransfer/nccl", "kvtransfer/cuda_ipc", "tests/host_cuda", "engine/parallel/nccl")

INCLUDE = re.compile(r'^\s*#include\s+("[^"]+"|<[^>]+>)', re.M)
TARGET = re.compile(r"sluice_(library|binary|test|fuzzer)\(\s*(\w+)(.*?)\)", re.S)


def box_of(path: str):
    hits = [b for b in ALLOWED if path == b or path.startswith(b + "/") or path.startswith(b + ".")]
    return max(hits, key=len) if hits else None


def sources():
    for folder in sorted({b.split("/")[0] for b in ALLOWED}):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def is_test(path: str) -> bool:
    return "_test." in path or "_fuzz." in path or "_bench." in path or "/testing/" in path or "/conformance/" in path


def edge_allowed(box: str, other: str, test: bool) -> bool:
    return box == other or other in ALLOWED[box] or (test and other in TEST_EXTRA)


class HouseTest(unittest.TestCase):
    def test_includes_follow_the_rule(self):
        broken = []
        for path, text in sources():
            box = box_of(path)
            for include in INCLUDE.findall(text):
                if include[0] != '"':
                    continue
                other = box_of(include.strip('"'))
                if other and not edge_allowed(box, other, is_test(path)):
                    broken.append(f"{path} ({box}) includes {include} ({other})")
        self.assertEqual(broken, [])

    def test_link_dependencies_follow_the_rule(self):
        home, deps = {}, []
        for cmake in sorted(ROOT.rglob("CMakeLists.txt")):
            folder = cmake.relative_to(ROOT).parent.as_posix()
            if folder.startswith("build") or folder == ".":
                continue
            if folder == "proto":
                home["sluice_proto"] = home["sluice_proto_messages"] = folder
            for kind, name, body in TARGET.findall(re.sub(r"#.*", "", cmake.read_text(encoding="utf-8"))):
                # A box of one file, which has the folder of a larger one.
                home[name] = "engine/block_hash" if name == "sluice_engine_block_hash" else folder
                words = re.split(r"\b(SRCS|DEPS|LIBS|LABELS)\b", body)
                for key, value in zip(words[1::2], words[2::2]):
                    if key == "DEPS":
                        deps += [(kind, name, folder, dep) for dep in value.split()]
        self.assertGreater(len(deps), 5, "the CMake files were not understood")
        broken = []
        for kind, name, folder, dep in deps:
            if folder.split("/")[0] in ANYTHING:
                continue
            self.assertIn(dep, home, f"{name} in {folder} depends on {dep}, which no CMakeLists.txt defines")
            box, other = box_of(folder), box_of(home[dep])
            if other is None and kind != "library":
                continue
            if not edge_allowed(box, other, kind in ("test", "fuzzer") or "testing" in folder):
                broken.append(f"{name} ({box}) links {dep} ({other})")
        self.assertEqual(broken, [])

    def test_pure_cores_stay_pure(self):
        broken, seen = [], 0
        for path, text in sources():
            stem = path.rsplit(".", 1)[0]
            if is_test(path) or not any(pathlib.PurePath(stem).match(p) for p in PURE):
                continue
            seen += 1
            broken += [f"{path} includes {i}" for i in INCLUDE.findall(text) if IMPURE.search(i)]
            if "random_device" in text:  # an engine handed in is fine, a source of its own is not
                broken.append(f"{path} draws randomness of its own")
        self.assertGreater(seen, 10, "the list of pure files matches nothing")
        self.assertEqual(broken, [])

    def test_cuda_headers_stay_in_the_plugin(self):
        broken = [f"{path} includes {i}" for path, text in sources() for i in INCLUDE.findall(text)
                  if CUDA.search(i) and not path.startswith(CUDA_HOMES)]
        self.assertEqual(broken, [])

    def test_the_rule_can_fail(self):
        self.assertFalse(edge_allowed("kvtransfer", "engine", False))
        self.assertFalse(edge_allowed("engine", "kvtransfer", True))
        self.assertFalse(edge_allowed("kernels", "engine", False))
        self.assertTrue(edge_allowed("worker", "engine", False))
        self.assertEqual(box_of("engine/files/gguf.h"), "engine/files")
        self.assertTrue(IMPURE.search("<thread>") and CUDA.search("<cuda_runtime.h>"))


if __name__ == "__main__":
    unittest.main()
