"""Scans of local sites, without a database."""

from typing import Any

from config import Settings
from services.scanning.config import CookieScanConfig
from services.scanning.findings import Cookie, Page
from services.scanning.outcome import ScanOutcome
from services.scanning.scan import scan_domain
from services.scanning.watch import Watch

SETTINGS = Settings(_env_file=None, fetch_allowed_networks="127.0.0.0/8")
DOMAIN = "shop.example"


def scan(base_url: str, watch: Watch = Watch(), settings: Settings = SETTINGS, **config: Any) -> ScanOutcome:
    wanted = {"base_url": base_url, "delay_seconds": 0, "max_retries": 0, **config}
    return scan_domain(DOMAIN, CookieScanConfig.model_validate(wanted), settings, watch)


def paths(outcome: ScanOutcome) -> list[str]:
    """The pages in the order of the visits."""
    return ["/" + page.url.split("/", 3)[3] for page in outcome.pages]


def page(outcome: ScanOutcome, path: str) -> Page:
    [found] = [page for page in outcome.pages if "/" + page.url.split("/", 3)[3] == path]
    return found


def names(outcome: ScanOutcome) -> set[str]:
    return {cookie.name for cookie in outcome.cookies}


def cookie(outcome: ScanOutcome, name: str) -> Cookie:
    [found] = [cookie for cookie in outcome.cookies if cookie.name == name]
    return found
