"""Limits of one page in the browser."""

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BrowserLimits:
    page_seconds: float = 30.0  # until it has loaded; after that, the loaded part counts
    settle_seconds: float = 3.0  # time after loading in which its scripts may make further requests
    quiet_seconds: float = 0.5  # without a request: the page has settled
    banner_seconds: float = 4.0  # time after loading in which a consent banner may appear
    press_seconds: float = 2.0  # time for a real click on its button, before a click event is sent by script
    collect_seconds: float = 5.0  # for reading the page's state, which an endless script would block
    start_seconds: float = 60.0  # of the browser
    max_requests: int = 1000
    max_bytes: int = 64 * MEBIBYTE  # over the network, including embedded resources
    max_memory_bytes: int = 2048 * MEBIBYTE  # of all browser processes

    @property
    def find_seconds(self) -> float:
        """For the banner to appear, plus one check that starts after that."""
        return self.banner_seconds + self.collect_seconds

    @property
    def click_seconds(self) -> float:
        return 2 * self.press_seconds + self.collect_seconds

    @property
    def visit_seconds(self) -> float:
        """Longer than one visitor needs for a page; a browser that exceeds it is stuck."""
        consent = self.find_seconds + self.click_seconds + self.settle_seconds
        return self.page_seconds + self.settle_seconds + consent + 7 * self.collect_seconds + 10
