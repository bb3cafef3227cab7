"""The outcome of a scan, before it is compared with the previous one and stored."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.scanning.findings import Category, ChangeKind, Consent, Cookie, CookieChange, EngineName, Page, Party


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOutcome:
    domain: str
    engine: EngineName
    started_at: datetime
    start_url: str
    config: dict[str, Any]
    pages: tuple[Page, ...]
    cookies: tuple[Cookie, ...]
    notes: tuple[str, ...]
    is_complete: bool  # False: the scan stopped early, so a cookie that is gone may only not have been reached

    def summary(self, changes: Iterable[CookieChange]) -> dict[str, Any]:
        """Plain JSON, small enough for every list of scans."""
        kinds = Counter(change.kind for change in changes)
        failed = sum(page.error is not None for page in self.pages)
        return {
            "start_url": self.start_url,
            "complete": self.is_complete,
            "pages": {"seen": len(self.pages) - failed, "failed": failed},
            "cookies": len(self.cookies),
            "categories": _counts(Category, (cookie.category for cookie in self.cookies)),
            "parties": _counts(Party, (cookie.party for cookie in self.cookies)),
            "consent": _counts(Consent, (cookie.consent for cookie in self.cookies)),
            "changes": {kind.value: kinds[kind] for kind in ChangeKind},
            "notes": list(self.notes),
        }


def _counts(words: type[Category] | type[Party] | type[Consent], values: Iterable[str]) -> dict[str, int]:
    found = Counter(values)
    return {word.value: found[word] for word in words}
