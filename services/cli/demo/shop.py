"""The demo shop for cookie scans: a few pages, a consent banner, and cookies that change with every release.

The same server under another host name (localhost instead of 127.0.0.1) plays the third party whose pixel the shop
embeds. Release 1 has a banner cookie. Release 2 drops it and starts to count visitors. Release 3 adds a partner.
"""

import html
from dataclasses import dataclass, field

DAY, YEAR = 86_400, 31_536_000
RELEASE_SECONDS = 20.0
TRACKER_HOST = "localhost"
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")

ARTICLES = {"/products/lamp": "A lamp", "/products/chair": "A chair", "/products/shelf": "A shelf"}
PAGES = {
    "/": "Welcome to the shop",
    "/products": "Everything we have",
    **ARTICLES,
    "/basket": "Your basket is empty",
    "/about": "We make furniture since last year",
}

# Cookies of each release, besides those that every release sets.
RELEASES = (
    (f"lang=en; Path=/; Max-Age={30 * DAY}", f"autumn_banner=seen; Path=/; Max-Age={7 * DAY}"),
    (f"lang=en; Path=/; Max-Age={YEAR}", f"_ga=GA1.1.1; Path=/; Max-Age={2 * YEAR}"),
    (
        f"lang=en; Path=/; Max-Age={YEAR}",
        f"_ga=GA1.1.1; Path=/; Max-Age={2 * YEAR}",
        f"_partner=7; Path=/; Max-Age={YEAR}",
    ),
)
EVERYWHERE = ("session_id=1; Path=/; HttpOnly; SameSite=Lax",)
BASKET = f"cart_token=1; Path=/basket; Max-Age={7 * DAY}; HttpOnly; SameSite=Strict"
TRACKING = f"track_id=1; Path=/; Max-Age={400 * DAY}; SameSite=None; Secure"


@dataclass(frozen=True, slots=True)
class ShopAnswer:
    status: int
    body: bytes
    content_type: str = "text/html; charset=utf-8"
    cookies: tuple[str, ...] = field(default=())


def shop_answer(path: str, host: str, port: int, open_seconds: float) -> ShopAnswer | None:
    """`open_seconds` is the time since the demo started. None if the shop has no such page."""
    if host == TRACKER_HOST:
        return ShopAnswer(200, PIXEL, "image/gif", (TRACKING,)) if path == "/pixel.gif" else None
    match path:
        case "/shop.js":
            return ShopAnswer(200, SCRIPT.encode(), "text/javascript")
        case "/robots.txt":
            return ShopAnswer(200, b"User-agent: *\nDisallow: /staff/\n", "text/plain")
        case _ if path in PAGES:
            cookies = (*EVERYWHERE, *release(open_seconds), *([BASKET] if path == "/basket" else []))
            return ShopAnswer(200, _page(path, port).encode(), cookies=cookies)
        case _:
            return None


def release(open_seconds: float) -> tuple[str, ...]:
    return RELEASES[int(open_seconds // RELEASE_SECONDS) % len(RELEASES)]


def _page(path: str, port: int) -> str:
    links = "".join(f'<li><a href="{target}">{html.escape(title)}</a>' for target, title in PAGES.items())
    return TEMPLATE.format(title=html.escape(PAGES[path]), links=links, tracker=f"http://{TRACKER_HOST}:{port}")


TEMPLATE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><script src="/shop.js" defer></script></head>
<body><h1>{title}</h1><ul>{links}<li><a href="/staff/">Staff</a></ul>
<img src="{tracker}/pixel.gif" alt="">
<div id="banner">May we count you? <button id="accept" onclick="agree()">Yes</button></div>
</body></html>
"""

# Visible to a browser only: cookies and storage written by scripts, and those set after the click on the banner.
SCRIPT = f"""
document.cookie = "_fbp=fb.1.1; path=/; max-age={90 * DAY}";
localStorage.setItem("last_viewed", location.pathname);
function agree() {{
  document.cookie = "cookie_consent=all; path=/; max-age={YEAR}";
  document.cookie = "_gcl_au=1.1; path=/; max-age={90 * DAY}";
  document.getElementById("banner").remove();
}}
if (document.cookie.includes("cookie_consent=all"))
  addEventListener("DOMContentLoaded", () => document.getElementById("banner")?.remove());
"""
