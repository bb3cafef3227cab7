"""How much one page may take."""

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BrowserLimits:
    page_seconds: float = 30.0  # until it has loaded; then what is there counts
    settle_seconds: float = 3.0  # how long after that its scripts may go on asking for things
    quiet_seconds: float = 0.5  # without a request: it has settled
    banner_seconds: float = 4.0  # how long after loading a consent banner may appear
    press_seconds: float = 2.0  # how long its button may resist a click, before it is told that it was clicked
    collect_seconds: float = 5.0  # for looking at what is there; a script that never ends would block it
    start_seconds: float = 60.0  # of the browser
    max_requests: int = 1000
    max_bytes: int = 64 * MEBIBYTE  # over the wire, everything that it embeds included
    max_memory_bytes: int = 2048 * MEBIBYTE  # of all processes of the browser

    @property
    def find_seconds(self) -> float:
        """For the banner to appear, and for one look that begins after that."""
        return self.banner_seconds + self.collect_seconds

    @property
    def click_seconds(self) -> float:
        return 2 * self.press_seconds + self.collect_seconds

    @property
    def visit_seconds(self) -> float:
        """More than one visitor needs for a page; a browser that takes longer is stuck."""
        consent = self.find_seconds + self.click_seconds + self.settle_seconds
        return self.page_seconds + self.settle_seconds + consent + 7 * self.collect_seconds + 10
