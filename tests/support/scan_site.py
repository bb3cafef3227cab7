"""A small shop to scan, and a tracker that it embeds: pages, cookies of every kind, a consent banner, a sitemap.

with ScanSite() as site:
    site.url                         http://127.0.0.1:PORT, the first party
    site.tracker.url                 http://localhost:PORT, another host: the third party
    site.new_release()               from now on other cookies: what a second scan must notice
    site.answer("/x", Answer(…))     any other page
    site.requests("/about")          what came in

What a visitor gets on the first release, by who sets it:
    every page, header      session_id (session, HttpOnly, Lax), _ga (two years), theme (/about only)
    /app.js, script         _fbp, and theme_choice in local storage; cart in session storage
    tracker, header         track_id on /pixel.gif (SameSite=None; Secure), embed_id in /frame
    #accept, script         consent, _gcl_au, and consent_at in local storage; after that every page sets member_since
"""

import gzip
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Self, cast
from urllib.parse import urlsplit

YEAR = 31_536_000
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")


@dataclass(frozen=True, slots=True)
class Request:
    path: str  # without the query
    query: str
    headers: Mapping[str, str]  # lower-case names
    body: bytes = b""

    @property
    def cookies(self) -> str:
        return self.headers.get("cookie", "")


@dataclass(frozen=True, slots=True)
class Answer:
    """A `body` in pieces is sent without a length, until the client disconnects."""

    body: str | bytes | Iterable[bytes] = ""
    status: int = 200
    content_type: str | None = "text/html; charset=utf-8"
    cookies: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


Page = Callable[[Request], Answer]


class WebServer:
    """Listens on a free port of 127.0.0.1 from the start to the end of the `with` block."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._lock = threading.Lock()
        self._pages: dict[str, Page] = {}
        self._requests: list[Request] = []
        self._server = _Server(self)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._server.server_address[1]}"

    def answer(self, path: str, page: Page | Answer) -> None:
        """Sets the response of this path; a trailing * matches all paths with that beginning."""
        with self._lock:
            self._pages[path] = page if callable(page) else lambda _request: page

    def requests(self, path: str | None = None) -> list[Request]:
        with self._lock:
            return [request for request in self._requests if path in (None, request.path)]

    def respond(self, request: Request) -> Answer:
        with self._lock:
            self._requests.append(request)
            page = self._pages.get(request.path) or self._pages_below(request.path)
        return page(request) if page else Answer("<h1>Not here</h1>", status=404)

    def _pages_below(self, path: str) -> Page | None:
        found = [known for known in self._pages if known.endswith("*") and path.startswith(known[:-1])]
        return self._pages[max(found, key=len)] if found else None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class ScanSite(WebServer):
    def __init__(self) -> None:
        super().__init__()
        self.tracker = WebServer("localhost")
        self._release = 1
        for path, body in self._bodies().items():
            self.answer(path, self._page(body))
        self.answer("/about", self._page("<p>Since 2019.</p>", "theme=light; Path=/; Max-Age=2592000; SameSite=Lax"))
        self.answer("/old", Answer(status=301, cookies=("moved=1; Path=/",), headers={"Location": "/about"}))
        self.answer("/app.js", Answer(APP_JS, content_type="text/javascript"))
        self.answer("/style.css", Answer("body { margin: 2em }", content_type="text/css"))
        self.answer("/robots.txt", lambda _request: Answer(self._robots(), content_type="text/plain"))
        self.answer("/sitemap.xml", lambda _request: Answer(self._sitemap(), content_type="application/xml"))
        self.tracker.answer("/pixel.gif", self._pixel)
        self.tracker.answer("/frame", Answer("<p>A film</p>", cookies=("embed_id=7; Path=/; Max-Age=600",)))

    def new_release(self) -> None:
        """_ga is gone, session_id loses its HttpOnly, promo is new."""
        self._release = 2

    def __enter__(self) -> Self:
        self.tracker.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.tracker.__exit__(*error)

    def _bodies(self) -> dict[str, str]:
        return {
            "/": START.format(tracker=self.tracker.url),
            "/products": '<a href="/products/1">One</a> <a href="/products/2">Two</a>',
            "/products/1": '<p>One</p><a href="/products">All</a>',
            "/products/2": '<p>Two</p><a href="/products/2/details">More</a>',
            "/products/2/details": "<p>Details</p>",
            "/private/account": "<p>Not for robots.</p>",
            "/only-in-the-sitemap": "<p>Nobody links here.</p>",
            "/unlinked": "<p>Found only by who knows it.</p>",
        }

    def _page(self, body: str, *cookies: str) -> Page:
        def page(request: Request) -> Answer:
            html = f"<!DOCTYPE html><html><head><title>Shop</title>{HEAD}</head><body>{body}{BANNER}</body></html>"
            return Answer(html, cookies=(*self._cookies(request), *cookies))

        return page

    def _cookies(self, request: Request) -> list[str]:
        first = self._release == 1
        cookies = ["session_id=abc; Path=/; SameSite=Lax" + ("; HttpOnly" if first else "")]
        cookies.append(f"_ga=GA1.2.3; Path=/; Max-Age={2 * YEAR}" if first else f"promo=x; Path=/; Max-Age={YEAR}")
        if "consent=granted" in request.cookies:
            cookies.append(f"member_since=today; Path=/; Max-Age={YEAR}")
        return cookies

    def _pixel(self, _request: Request) -> Answer:
        return Answer(PIXEL, content_type="image/gif", cookies=(f"track_id=1; Max-Age={YEAR}; SameSite=None; Secure",))

    def _robots(self) -> str:
        return f"User-agent: *\nDisallow: /private/\n\nSitemap: {self.url}/sitemap.xml\n"

    def _sitemap(self) -> str:
        places = "".join(f"<url><loc>{self.url}{path}</loc></url>" for path in ("/", "/only-in-the-sitemap"))
        return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}</urlset>'


HEAD = '<link rel="stylesheet" href="/style.css"><script src="/app.js" defer></script>'

BANNER = """
<div id="banner"><p>May we?</p><button id="accept" data-role="accept" onclick="agree()">Accept</button></div>
"""

START = """
<h1>Shop</h1>
<a href="/about">About</a> <a href="/about#team">Team</a> <a href="/products?utm_source=start">Products</a>
<a href="/old">Old</a> <a href="/missing">Gone</a> <a href="/private/account">Account</a>
<a href="mailto:shop@example.com">Mail</a> <a href="javascript:void(0)">Nothing</a> <a href="https://other.example/">X</a>
<img src="{tracker}/pixel.gif" alt=""><iframe src="{tracker}/frame"></iframe>
"""

APP_JS = f"""
document.cookie = "_fbp=fb.1.2; path=/; max-age=7776000";
localStorage.setItem("theme_choice", "light");
sessionStorage.setItem("cart", "[]");
function agree() {{
  document.cookie = "consent=granted; path=/; max-age={YEAR}";
  document.cookie = "_gcl_au=1.1.2; path=/; max-age=7776000";
  localStorage.setItem("consent_at", "now");
  document.getElementById("banner").remove();
}}
window.addEventListener("DOMContentLoaded", function () {{
  if (document.cookie.includes("consent=granted")) document.getElementById("banner").remove();
}});
"""


def zipped(text: str) -> bytes:
    return gzip.compress(text.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, site: WebServer) -> None:
        self.site = site
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Without HTTPServer's DNS lookup, which can take many seconds."""
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: visitors that disconnect are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30.0
    wbufsize = 64 * 1024

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        sent = self.rfile.read(int(headers.get("content-length", 0)))
        answer = cast(_Server, self.server).site.respond(Request(target.path, target.query, headers, sent))
        body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        self.send_response(answer.status)
        if answer.content_type is not None:
            self.send_header("Content-Type", answer.content_type)
        for name, value in (*answer.headers.items(), *(("Set-Cookie", cookie) for cookie in answer.cookies)):
            self.send_header(name, value)
        if isinstance(body, bytes):
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        self._send([body] if isinstance(body, bytes) else body)

    do_HEAD = do_POST = do_GET

    def _send(self, pieces: Iterable[bytes]) -> None:
        if self.command == "HEAD":
            return
        for piece in pieces:
            self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Silent: `requests` is the log."""
