"""Who belongs to a cluster: processes with its key, and where TLS is on with a certificate of its authority. A stranger at
any port, at any time, changes nothing."""
import pathlib
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cluster import BUILD, Cluster, Server, tiny_model, wait_until

FLAGS = ["--threads", 1, "--kv-blocks", 64]


class Stranger:
    """Speaks the cluster's own protocols to a port, without its key."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))

    def message(self, name, **fields):
        made = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"sluice.v1.{name}"))()
        for key, value in fields.items():
            target = made
            *path, last = key.split("__")
            for part in path:
                target = getattr(target, part)
            setattr(target, last, value)
        return made

    def stream(self, method, answer, *messages):
        """All that comes back, and the status."""
        answers = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"sluice.v1.{answer}"))
        over = threading.Event()

        def sent():  # the stream stays open: the other side ends it
            yield from messages
            over.wait(20)
        call = self.channel.stream_stream(method, request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=answers.FromString)(sent(), timeout=20)
        came = []
        try:
            for one in call:
                came.append(one)
        except grpc.RpcError:
            pass
        over.set()
        return came, call.code(), call.details()

    def close(self):
        self.channel.close()


class KeyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-key-"))
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder], check=False)
        self.key = self.write("cluster.key", "0123456789abcdef0123456789abcdef\n")
        self.model = tiny_model(self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def cluster(self, key, channel="auto"):
        cluster = Cluster(workers=0, prefill=1, decode=1, model=self.model, router_flags=["--cluster-key", key],
                          worker_flags=[*FLAGS, "--cluster-key", key, "--kv-channel", channel])
        cluster.__enter__()
        self.addCleanup(cluster.close)
        return cluster

    def counters(self, cluster):
        state = cluster.client.state()
        return [(w.incarnation, w.state, w.blocks_free, w.running,
                 [(f.peer_incarnation, f.channel, f.epochs, f.aborts) for f in w.kv_flows]) for w in state.workers]

    def test_with_the_key_it_works_and_the_pairs_numbers_are_shown(self):
        for channel in ("shm", "tcp"):
            with self.subTest(channel=channel):
                cluster = self.cluster(self.key, channel)
                answer = cluster.client.generate("hello there", max_tokens=8, ignore_eos=True)
                self.assertEqual(len(answer.token_ids), 8)
                self.assertGreater(answer.timing.transfer_bytes, 0)
                self.assertGreaterEqual(answer.timing.exposed_transfer_ms, 0)

                def flows():
                    workers = {w.role: w for w in cluster.client.state().workers}
                    if len(workers) != 2 or not all(w.kv_flows and w.kv_flows[0].transfers for w in workers.values()):
                        return None
                    return workers[1].kv_flows[0], workers[2].kv_flows[0]
                sent, took = wait_until(flows, 10, cluster.client.state)
                for flow in (sent, took):
                    self.assertEqual(flow.bytes, answer.timing.transfer_bytes)
                    self.assertEqual((flow.channel, flow.transfers, flow.epochs, flow.aborts, flow.corrupt_pieces),
                                     (channel, 1, 1, 0, 0))
                    self.assertGreater(flow.busy_seconds, 0)
                self.assertIn("decode", sent.peer)
                self.assertIn("prefill", took.peer)
                with urllib.request.urlopen(f"http://{cluster.router.fields['http']}/metrics", timeout=10) as page:
                    metrics = page.read().decode()
                self.assertRegex(metrics, r'sluice_kv_transfer_bytes_total{role="prefill",[^}]*} ' + str(sent.bytes))
                self.assertRegex(metrics, r'sluice_kv_pair_up{role="decode",[^}]*} 1')
                table = cluster.cli("status")
                self.assertIn("KV TO/FROM", table.stdout)
                cluster.close()

    def test_strangers_change_nothing(self):
        cluster = self.cluster(self.key)
        cluster.check_alive()
        wait_until(lambda: all(w.kv_flows for w in cluster.client.state().workers), 10, cluster.client.state)
        before = self.counters(cluster)
        prefill, decode = cluster.of_role("prefill")[0], cluster.of_role("decode")[0]
        incarnation = {w.role: w.incarnation for w in cluster.client.state().workers}
        for worker, role in ((prefill, 1), (decode, 2)):
            stranger = Stranger(f"127.0.0.1:{worker.fields['port']}")
            hello = stranger.message("RouterMessage", hello__router_incarnation=77,
                                     hello__worker_incarnation=incarnation[role])
            came, code, details = stranger.stream("/sluice.v1.Worker/Work", "WorkerMessage", hello)
            self.assertEqual((came, code), ([], grpc.StatusCode.UNAUTHENTICATED), details)
            self.assertIn("--cluster-key", details)
            stranger.close()
        # One that says it is the prefill worker itself, beginning a new epoch.
        stranger = Stranger(f"127.0.0.1:{decode.fields['port']}")
        hello = stranger.message("SenderMessage", epoch=1000, hello__sender_incarnation=incarnation[1],
                                 hello__receiver_incarnation=incarnation[2], hello__auth=b"x" * 32)
        came, code, details = stranger.stream("/sluice.v1.Transfer/Link", "ReceiverMessage", hello)
        self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED, details)
        self.assertFalse(came and came[0].hello.HasField("fingerprint"), "a stranger is told nothing")
        stranger.close()
        # One that announces itself, and one that says that it is the decode worker and leaves.
        stranger = Stranger(cluster.address)
        for fields in ({"info__incarnation": 99, "info__role": 2},
                       {"info__incarnation": incarnation[2], "info__role": 2, "leaving": True}):
            _, code, details = stranger.stream("/sluice.v1.Registry/Announce", "AnnounceReply",
                                               stranger.message("Announcement", **fields))
            self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED, details)
        stranger.close()
        cluster.check_alive()
        after = self.counters(cluster)
        self.assertEqual(after, before)

    def test_another_key_or_none_is_refused(self):
        cluster = self.cluster(self.key)
        for name, text in (("other.key", "another key, long enough"), ("none", None)):
            flags = ["--cluster-key", self.write(name, text)] if text else []
            stranger = Server([BUILD / "sluice_decode", "--role", "decode", "--router", cluster.address, "--model",
                               self.model, "--port", 0, "--threads", 1, "--kv-blocks", 64, *flags],
                              self.folder / f"{name}.log")
            self.addCleanup(stranger.end)
            wait_until(lambda s=stranger: "cluster's key" in s.text(), 20, stranger.text)
            self.assertEqual(len(cluster.client.state().workers), 2)
        cluster.check_alive()

    def test_bad_key_files_are_named(self):
        for path, what in ((self.folder / "missing", "missing"), (self.write("short", "0123"), "at least 16")):
            for binary in ("sluice_router", "sluice_decode"):
                ran = subprocess.run([BUILD / binary, "--model", self.model, "--cluster-key", path], text=True,
                                     capture_output=True, timeout=60, check=False)
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn(str(path), ran.stderr)
                self.assertIn(what, ran.stderr)


class TlsTest(KeyTest):
    """The same once more would say nothing new: only what TLS adds."""
    test_with_the_key_it_works_and_the_pairs_numbers_are_shown = None
    test_strangers_change_nothing = None
    test_another_key_or_none_is_refused = None
    test_bad_key_files_are_named = None

    def authority(self, name):
        folder = self.folder / name
        folder.mkdir()

        def openssl(*arguments):
            subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=folder)
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj",
                "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca.pem")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=sluice",
                "-addext", "subjectAltName=DNS:sluice.cluster", "-keyout", "key.pem", "-out", "request.pem")
        openssl("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial",
                "-days", 2, "-copy_extensions", "copy", "-out", "cert.pem")
        return folder

    def test_certificates_of_one_authority(self):
        ours, theirs = self.authority("ours"), self.authority("theirs")
        cluster = Cluster(workers=0, prefill=1, decode=1, model=self.model, router_flags=["--tls", ours],
                          worker_flags=[*FLAGS, "--tls", ours])
        with cluster:
            cluster.check_alive()
            decode = cluster.of_role("decode")[0]
            with self.assertRaises(Exception):  # no certificate
                Stranger(f"127.0.0.1:{decode.fields['port']}").message("RouterMessage")
            other = Server([BUILD / "sluice_decode", "--role", "decode", "--router", cluster.address, "--model", self.model,
                            "--port", 0, *FLAGS, "--tls", theirs], self.folder / "theirs.log").wait_ready()
            self.addCleanup(other.end)
            wait_until(lambda: len(cluster.client.state().workers) == 3, 20, cluster.client.state)
            for _ in range(6):
                cluster.check_alive()
            prefill = cluster.of_role("prefill")[0]
            self.assertEqual(prefill.text().count("paired with"), 1)

    def test_a_missing_file_is_named(self):
        folder = self.authority("ours")
        (folder / "cert.pem").unlink()
        ran = subprocess.run([BUILD / "sluice_decode", "--model", self.model, "--tls", folder], text=True,
                             capture_output=True, timeout=60, check=False)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn(str(folder / "cert.pem"), ran.stderr)


if __name__ == "__main__":
    unittest.main()
