"""The demo site: a small web server on this machine that the demo schedules call.

/health   answers at once
/report   takes one to two seconds, or as many as ?seconds= says
/flaky    fails every third time
/         a shop with cookies, for the scans (shop.py)

Hosts below `example`, and the directory that lists them, are for the workflows (directory.py).
"""

import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Self, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

from services.cli.demo.directory import directory_answer
from services.cli.demo.shop import ShopAnswer, shop_answer

PATHS = ("/health", "/report", "/flaky")
LONGEST_SECONDS = 60.0


class DemoSite:
    """Listens on a free port of 127.0.0.1 from the start to the end of the `with` block."""

    def __init__(self) -> None:
        self._server = _Server()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="demo-site", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.closing.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> int:
        return self._server.count.total()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.closing = threading.Event()
        self.opened_at = time.monotonic()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Without HTTPServer's DNS lookup, which can take many seconds."""
        TCPServer.server_bind(self)

    def counted(self, path: str) -> int:
        """The number of this request among those for its path."""
        with self._lock:
            self.count[path] += 1
            return self.count[path]

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: a job that was killed disconnects."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0

    def do_GET(self) -> None:
        target, server = urlsplit(self.path), cast(_Server, self.server)
        number = server.counted(target.path if target.path in PATHS else "elsewhere")
        match target.path:
            case "/health":
                self._send(200, "healthy\n")
            case "/report":
                server.closing.wait(_seconds(target.query))
                self._send(200, f"report {number}\n")
            case "/flaky" if number % 3:
                self._send(200, "went well this time\n")
            case "/flaky":
                self._send(503, "every third request fails here\n")
            case _:
                self._answer(self._page(target) or ShopAnswer(404, b"there is nothing here", "text/plain"))

    do_POST = do_HEAD = do_GET

    def _page(self, target: SplitResult) -> ShopAnswer | None:
        server = cast(_Server, self.server)
        host, port = self.headers.get("Host", "").partition(":")[0], server.server_address[1]
        of_town = directory_answer(host, target.path, target.query)
        return of_town or shop_answer(target.path, host, port, time.monotonic() - server.opened_at)

    def _send(self, status: int, text: str) -> None:
        self._answer(ShopAnswer(status, text.encode(), "text/plain; charset=utf-8"))

    def _answer(self, answer: ShopAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for cookie in answer.cookies:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Silent: the history of executions records the requests."""


def _seconds(query: str) -> float:
    try:
        return min(LONGEST_SECONDS, max(0.0, float(parse_qs(query)["seconds"][0])))
    except (KeyError, ValueError):
        return random.uniform(1, 2)  # noqa: S311 - a demonstration, not a secret
