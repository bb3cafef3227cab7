"""Crawl frontier: the pages still to visit, breadth first, each once, with limits against crawler traps. Pure."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from services.fetching.sites.urls import Site, looks_endless, shape_of

# A site with more addresses than this multiple of the wanted pages cannot be scanned completely anyway.
KNOWN_PER_PAGE, LEAST_KNOWN = 20, 1_000
LEAST_OF_ONE_SHAPE = 10


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    depth: int


class Frontier:
    """Pages of one shape (`/news/#`, `/calendar?month`) get at most a quarter of the scan, so that an endless calendar
    does not displace the rest.
    """

    def __init__(self, site: Site, max_pages: int, scan_depth: int) -> None:
        self._site, self._scan_depth = site, scan_depth
        self._max_of_one_shape = max(LEAST_OF_ONE_SHAPE, max_pages // 4)
        self._max_known = max(LEAST_KNOWN, KNOWN_PER_PAGE * max_pages)
        self._waiting: deque[Target] = deque()
        self._known: set[str] = set()
        self._reached: set[str] = set()
        self._shapes: Counter[str] = Counter()
        self._endless = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, url: str) -> bool:
        """Adds a page that the configuration names, whatever its shape; False if it is already known."""
        if url in self._known:
            return False
        self._known.add(url)
        self._waiting.append(Target(url, 0))
        return True

    def add(self, urls: Iterable[str], depth: int) -> None:
        """Adds pages found at this depth."""
        if depth > self._scan_depth:
            return
        for url in urls:
            if url not in self._known and len(self._known) < self._max_known and self._site.has(url):
                self._known.add(url)
                if self._has_room_for(url):
                    self._waiting.append(Target(url, depth))

    def next(self) -> Target | None:
        while self._waiting:
            target = self._waiting.popleft()
            if target.url not in self._reached:
                return target
        return None

    def reached(self, url: str) -> None:
        """Marks a page as visited, perhaps through a redirect from another page."""
        self._reached.add(url)

    def notes(self) -> list[str]:
        most = [(shape, count) for shape, count in self._shapes.most_common(5) if count > self._max_of_one_shape]
        notes = [f"pages like {shape} left out: {count - self._max_of_one_shape}" for shape, count in most]
        endless = [f"addresses left out because they grow with every click: {self._endless}"] if self._endless else []
        return notes + endless

    def _has_room_for(self, url: str) -> bool:
        if looks_endless(url):
            self._endless += 1
            return False
        shape = shape_of(url)
        self._shapes[shape] += 1
        return self._shapes[shape] <= self._max_of_one_shape
