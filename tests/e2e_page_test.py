"""The live page in headless Chromium against a live cluster: it loads nothing from elsewhere and without an error, shows
the workers, the load, a killed worker, a request's timeline and a chat, with keys and through a restart of the router.

  python3 -B e2e_page_test.py --screenshots FOLDER   writes page_idle, page_load, page_timeline, page_killed and
                                                     page_phone.png (with the real model), as docs/plots/ has them
"""
import contextlib
import json
import pathlib
import random
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc

import browser as chromium
from cluster import Cluster, real_model, tiny_model, wait_until
from sluice_client import Background, Client

PATIENCE = 60
TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
# A name that would be a script if it were ever taken for HTML.
EVIL = "<img/src=x/onerror=document.title='evil'>"


class Load:
    """Clients that ask one request after the other."""

    def __init__(self, cluster, clients=4, tokens=24):
        self._asked = [0]
        self._calls = [None] * clients
        self._cluster, self._tokens = cluster, tokens

    def step(self):
        """Starts anew what has ended."""
        for i, call in enumerate(self._calls):
            if call is None or call.done.is_set():
                self._asked[0] += 1
                prompt = f"{self._asked[0]} " + "word " * random.randrange(4, 60)
                self._calls[i] = Background(self._cluster.client, prompt, max_tokens=self._tokens, ignore_eos=True, tenant="load")
        return True

    def wait_until(self, condition, what):
        return wait_until(lambda: self.step() and condition(), PATIENCE, what)


@contextlib.contextmanager
def page_of(cluster, **open_flags):
    with chromium.Browser(cluster.folder) as browser:
        yield browser.open(f"http://{cluster.router.fields['http']}/", **open_flags)


@unittest.skipIf(chromium.missing(), chromium.missing())
class PageTest(unittest.TestCase):
    def check_clean(self, page, cluster):
        here = f"http://{cluster.router.fields['http']}/"
        self.assertEqual([url for url in page.requests if not url.startswith(here)], [])
        self.assertEqual(page.errors, [])
        self.assertEqual(page.evaluate("document.title"), "Sluice")

    def test_workers_load_and_timeline(self):
        with Cluster(workers=0, prefill=1, decode=2) as cluster, page_of(cluster) as page:
            wait_until(lambda: page.text().count("active") >= 3, PATIENCE, page.text)
            names = [f"{worker.host}:{worker.port}" for worker in cluster.client.state().workers]
            wait_until(lambda: all(name in page.text("#workers") for name in names), PATIENCE, lambda: page.text("#workers"))
            # Pairs come with a worker's first report after they are up.
            wait_until(lambda: "kv between workers" in page.text().lower(), PATIENCE, page.text)
            lines = "document.querySelectorAll('#charts path.line').length + document.querySelectorAll('#charts .dot').length"
            load = Load(cluster)
            load.wait_until(lambda: "load" in page.text("#requests") and "done" in page.text("#requests"), page.text)
            # All four charts have something to show, and go on.
            charts = "[...document.querySelectorAll('#charts figure')].filter(f => f.querySelector('path.line, .dot')).length"
            load.wait_until(lambda: page.evaluate(charts) == 4, lambda: page.evaluate(lines))
            before = page.evaluate("document.querySelector('#charts').innerHTML")
            load.wait_until(lambda: page.evaluate("document.querySelector('#charts').innerHTML") != before, "charts move")
            load.wait_until(lambda: "/s" in page.text("#flows") and "shm" in page.text("#flows"), lambda: page.text("#flows"))
            # A name is text, whatever it says; and its timeline opens.
            cluster.client.generate("some words", max_tokens=8, ignore_eos=True, request_id=EVIL, tenant=EVIL)
            wait_until(lambda: EVIL in page.text("#requests"), PATIENCE, lambda: page.text("#requests"))
            page.evaluate("document.activeElement.blur(); [...document.querySelectorAll('#requests tr.pick')]"
                          f".find(r => r.dataset.request === {json.dumps(EVIL)}).click()")
            wait_until(lambda: "prefilling" in page.text("#timeline"), PATIENCE, lambda: page.text("#timeline"))
            for name in (EVIL, "queued", "first_token", "committed", "done"):
                self.assertIn(name, page.text("#timeline"))
            self.assertGreater(page.evaluate("document.querySelectorAll('#timeline .phases i').length"), 2)
            self.check_clean(page, cluster)

    def test_killed_worker_and_restarted_router(self):
        with Cluster(workers=2, router_flags=["--lease-ms", 3000]) as cluster, page_of(cluster) as page:
            wait_until(lambda: "2 of 2 active" in page.text("#workers"), PATIENCE, page.text)
            killed = cluster.workers[0]
            killed.end(9)
            wait_until(lambda: "1 of 2 active" in page.text("#workers"), PATIENCE, page.text)
            wait_until(lambda: f":{killed.fields['port']} active →" in page.text("#changes"), PATIENCE, page.text)
            wait_until(lambda: "forgotten" in page.text("#changes"), PATIENCE, page.text)
            self.check_clean(page, cluster)
            port = cluster.port, int(cluster.router.fields["http"].rsplit(":", 1)[1])
            cluster.router.end(9)
            wait_until(lambda: "does not answer" in page.text("#contact"), PATIENCE, page.text)
            cluster.start_router(*port)
            wait_until(lambda: page.text("#contact") == "live" and "1 of 1 active" in page.text("#workers"), PATIENCE, page.text)
            self.assertFalse([e for e in page.errors if "ERR_CONNECTION" not in e and "ERR_EMPTY" not in e and "ERR_SOCKET" not in e])

    def chat(self, page, text):
        page.type("#chat-text", text)
        page.click("#chat-send")
        wait_until(lambda: page.evaluate("document.querySelector('#chat-stop').hidden"), PATIENCE, page.text)
        self.assertIn(text, page.text("#chat-log .user"))
        return page.text("#chat-log .assistant")

    def test_chat_with_a_key(self):
        with contextlib.ExitStack() as stack:
            cluster = Cluster()
            stack.callback(cluster.close)
            template, keys = cluster.folder / "chat.jinja", cluster.folder / "keys"
            template.write_text(TEMPLATE, encoding="utf-8")
            keys.write_text("secret-key alice\n", encoding="utf-8")
            cluster.api_key = "secret-key"
            cluster.router_flags = ["--chat-template", template, "--api-keys", keys]
            cluster.__enter__()
            page = stack.enter_context(page_of(cluster))
            wait_until(lambda: "asks for an API key" in page.text(), PATIENCE, page.text)
            self.assertNotIn("active", page.text("#workers"))
            with contextlib.closing(Client(cluster.address, like=cluster.client)) as stranger, self.assertRaises(grpc.RpcError) as raised:
                stranger.requests()  # gRPC tells strangers nothing either
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            page.type("#key", "wrong")
            page.click("#key-form button")
            wait_until(lambda: "refused" in page.text("#key-error"), PATIENCE, page.text)
            page.type("#key", "secret-key")
            page.click("#key-form button")
            wait_until(lambda: "1 of 1 active" in page.text("#workers"), PATIENCE, page.text)
            self.assertTrue(self.chat(page, "hello <b>you</b>"))
            self.assertFalse(page.text("#chat-note"))
            wait_until(lambda: "alice" in page.text("#requests"), PATIENCE, page.text)
            page.send("Page.reload")  # the tab keeps the key
            wait_until(lambda: "1 of 1 active" in page.text("#workers"), PATIENCE, page.text)
            self.assertFalse([e for e in page.errors if "401" not in e], page.errors)

    def test_chat_without_a_template_on_a_dark_phone(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        model = tiny_model(folder)
        model.write_bytes(model.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.none_template"))
        with Cluster(model=model) as cluster, page_of(cluster, width=390, height=800, dark=True) as page:
            wait_until(lambda: "1 of 1 active" in page.text("#workers"), PATIENCE, page.text)
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390, "nothing hangs over the edge")
            self.assertTrue(self.chat(page, "one two three"))
            self.assertIn("no chat template", page.text("#chat-note"))
            self.assertFalse([e for e in page.errors if "400" not in e], page.errors)

    def test_heads(self):
        with Cluster() as cluster:
            for path, kind in (("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/page.css", "text/css")):
                with urllib.request.urlopen(f"http://{cluster.router.fields['http']}{path}", timeout=10) as answer:
                    self.assertTrue(answer.headers["Content-Type"].startswith(kind))
                    policy = answer.headers["Content-Security-Policy"]
                    self.assertIn("default-src 'none'", policy)
                    self.assertNotIn("unsafe", policy)
            for path in ("/page/../main.cc", "/page/", "/page/nothing.js"):
                with self.assertRaises(urllib.error.HTTPError) as raised:
                    urllib.request.urlopen(f"http://{cluster.router.fields['http']}{path}", timeout=10)
                self.assertEqual(raised.exception.code, 404)


def screenshots(folder):
    if chromium.missing():
        sys.exit(chromium.missing())
    folder = pathlib.Path(folder)
    flags = ["--threads", 1, "--kv-bytes", "256M"]
    with Cluster(workers=0, prefill=2, decode=2, model=real_model(), worker_flags=flags) as cluster, page_of(cluster) as page:
        def shoot(name, width=1200, height=1000, at="header"):
            page.resize(width, height, mobile=width < 500)
            page.evaluate(f"document.querySelector('{at}').scrollIntoView()")
            page.screenshot(folder / f"page_{name}.png")

        wait_until(lambda: page.text("#workers").count("2 of 2 active") == 2, PATIENCE, page.text)
        shoot("idle")
        load = Load(cluster, clients=6, tokens=48)
        points = "Math.max(...[...document.querySelectorAll('#charts path.line')].map(p => p.getAttribute('d').split('L').length), 0)"
        wait_until(lambda: load.step() and page.evaluate(points) > 40, 600, "more than a minute of load")
        shoot("load")
        page.evaluate("[...document.querySelectorAll('#requests tr.pick')].find(r => r.innerText.includes('done')).click()")
        load.wait_until(lambda: "committed" in page.text("#timeline"), page.text)
        shoot("timeline", height=620, at="#timeline")
        page.click("#timeline button")
        cluster.of_role("decode")[0].end(9)
        load.wait_until(lambda: "gone" in page.text("#workers"), page.text)
        shoot("killed")
        shoot("phone", width=390, height=844)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--screenshots"]:
        screenshots(sys.argv[2])
    else:
        unittest.main()
