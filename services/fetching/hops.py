"""One answer on the way to a page, the last one included."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hop:
    url: str
    status_code: int
    set_cookies: tuple[str, ...]  # raw values of Set-Cookie, one for each header
    cookies_left_out: int = 0  # there were more of them than answers.MAX_COOKIES
