"""Headless Chromium for a test: one process with a profile of its own, driven over the DevTools protocol through pipes."""
import base64
import json
import os
import pathlib
import queue
import shutil
import subprocess
import threading

CHROMIUM = "chromium"
TIMEOUT = 60  # seconds for an answer; the machine may be busy


def missing():
    """Why there can be none; empty where there can."""
    return "" if shutil.which(CHROMIUM) else "there is no chromium here; Debian's package chromium has it (deploy/test installs it)"


class Browser:
    """with Browser(folder) as browser: page = browser.open(url)"""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._number = 0
        self._answers = {}  # by number of the question
        self._lock = threading.Lock()
        self._pages = {}

    def __enter__(self):
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
                 f"--user-data-dir={self.folder / 'chromium'}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium's sandbox needs a user
        with open(self.folder / "chromium.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "bash", "-c", f'exec "$@" 3<&{commands} 4>&{events}', "bash", CHROMIUM, *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(commands, events))
        os.close(commands)
        os.close(events)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_):
        os.close(self._commands)  # Chromium ends with its pipe
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self):
        rest = b""
        while data := os.read(self._events, 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers[message["id"]].put(message)
                elif message.get("sessionId") in self._pages:
                    self._pages[message["sessionId"]].hear(message["method"], message["params"])
        os.close(self._events)

    def send(self, method, session=None, **params):
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = queue.Queue()
            question = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
            os.write(self._commands, json.dumps(question).encode() + b"\0")
        try:
            answer = self._answers[number].get(timeout=TIMEOUT)
        except queue.Empty:
            raise AssertionError(f"the browser does not answer {method}: {(self.folder / 'chromium.log').read_text()}") from None
        del self._answers[number]
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url, width=1200, height=900, dark=False):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.send("Page.navigate", url=url)
        return page


class Page:
    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.requests = []  # URLs
        self.errors = []    # of the console, of scripts, of loading

    def hear(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def send(self, method, **params):
        return self._browser.send(method, self._session, **params)

    def resize(self, width, height, mobile=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def evaluate(self, expression):
        """The value of a JavaScript expression; of a promise, what it comes to."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def text(self, selector="body"):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, selector, text):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def screenshot(self, path, full=False):
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))
