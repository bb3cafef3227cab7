"""robots.txt: fetched once per origin, and respected unless the scan is configured otherwise (RFC 9309).

A missing file (4xx) allows everything. An unavailable one (5xx, 429, no response) forbids everything, because the
owner's wishes are unknown.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from protego import Protego

from services.fetching import USER_AGENT, Fetcher, FetchFailed, Limits, may_work_later, shown_url
from services.fetching.sites.urls import origin_of

LIMITS = Limits(max_bytes=512 * 1024, max_seconds=20.0, max_redirects=5)
MAX_ORIGINS = 50
MAX_CRAWL_DELAY_SECONDS = 10.0
SOMEBODY_ELSE = "User-agent: somebody-else"

_AGENT = re.compile(r"\s*+user(?:-|\s*+)agent(?:\s*+:|\s)([^#]*)", re.IGNORECASE)  # as lenient as Protego


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one origin."""

    parsed: Protego
    failure: FetchFailed | None = None  # the file was unavailable
    is_reachable: bool = True  # the server responded

    def allows(self, url: str) -> bool:
        return self.failure is None and self.parsed.can_fetch(url, USER_AGENT)

    @property
    def delay_seconds(self) -> float:
        return min(self.parsed.crawl_delay(USER_AGENT) or 0.0, MAX_CRAWL_DELAY_SECONDS)

    @property
    def sitemaps(self) -> list[str]:
        return list(self.parsed.sitemaps)


NOTHING_FORBIDDEN = Rules(Protego.parse(""))
TOO_MANY = Rules(Protego(), FetchFailed(f"more than {MAX_ORIGINS} hosts of the site have rules of their own"))


def read_robots(text: str) -> Protego:
    """The rules for our user agent and for `*`.

    All other agents are merged into one: Protego stores each rule once per name of its group, and a file with ten
    thousand names and ten thousand rules would exhaust the memory.
    """
    return Protego.parse("\n".join(SOMEBODY_ELSE if _is_for_others(line) else line for line in text.splitlines()))


def _is_for_others(line: str) -> bool:
    found = _AGENT.match(line)
    return found is not None and not USER_AGENT.startswith(found[1].replace("*", "").strip().lower())


class Robots:
    def __init__(self, fetcher: Fetcher, respected: bool, remaining_seconds: Callable[[], float]) -> None:
        self._fetcher, self._respected, self._remaining_seconds = fetcher, respected, remaining_seconds
        self._known: dict[str, Rules] = {}

    def allows(self, url: str) -> bool:
        return not self._respected or self.rules(origin_of(url)).allows(url)

    def rules(self, origin: str) -> Rules:
        """The rules as of the first request to the origin."""
        if origin not in self._known:
            self._known[origin] = self._ask(origin) if len(self._known) < MAX_ORIGINS else TOO_MANY
        return self._known[origin]

    def forget(self, origin: str) -> None:
        """Fetch them again next time."""
        self._known.pop(origin, None)

    def _ask(self, origin: str) -> Rules:
        url = f"{origin}/robots.txt"
        try:
            fetched = self._fetcher.get(url, limits=LIMITS, remaining_seconds=self._remaining_seconds)
        except FetchFailed as error:
            if not error.hops:
                return Rules(Protego(), error, is_reachable=False)
            cause = str(error).removeprefix(f"GET {shown_url(url)}: ")
            return _unknown(f"{url} cannot be read: {cause}", retryable=error.retryable)
        if may_work_later(fetched.status_code):
            return _unknown(f"{url} answered {fetched.status_code}", retry_after_seconds=fetched.retry_after_seconds)
        return Rules(read_robots(fetched.text)) if fetched.status_code == 200 else NOTHING_FORBIDDEN


def _unknown(why: str, *, retryable: bool = True, retry_after_seconds: float | None = None) -> Rules:
    said = f"{why}, so it is unknown what may be visited"
    return Rules(Protego(), FetchFailed(said, retryable=retryable, retry_after_seconds=retry_after_seconds))
