"""Hop: one response on the way to a page, the final one included."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hop:
    url: str
    status_code: int
    set_cookies: tuple[str, ...]  # raw values of Set-Cookie, one for each header
    cookies_left_out: int = 0  # the response had more than answers.MAX_COOKIES
