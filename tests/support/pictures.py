"""Takes the pictures of docs/images from a running demo: python -m tests.support.pictures [MINUTES]

It starts `manage.py dev` with its own servers, waits until the charts have data, and photographs the dashboard. A rule
tells of what fails by e-mail to a server of this program.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from playwright.sync_api import Page, sync_playwright

from config import PROJECT_ROOT, load_settings
from services.embedded import stop_servers
from services.scanning.engines.browser.process import find_browser
from tests.support.mail import MailServer
from tests.support.waiting import eventually

IMAGES = PROJECT_ROOT / "docs" / "images"
WAY_IN = r"dashboard: (\S+)\s+log in with (once_\S+)"
MOST_BYTES = 200_000
REPLICAS = 3
START_SECONDS, STOP_SECONDS, DRAW_SECONDS = 180.0, 60.0, 4.0
FAILING = {
    "name": "ledger import", "domain": "ledger import", "frequency": "interval", "time_config": {"seconds": 30},
    "job_type": "http_request", "job_config": {"url": "http://127.0.0.1:9/ledger"},
}  # fmt: skip
RULE = {"name": "everything", "channels": ["night-shift"], "events": ["failed", "recovered"]}


def take(minutes: float) -> None:
    with tempfile.TemporaryDirectory() as directory, MailServer() as mails:
        environment = {"PATH": os.defpath, "ENV_FILE": "", "EMBEDDED_DIR": directory, "SCAN_BROWSER": "none"}
        environment["FETCH_ALLOW_PRIVATE_ADDRESSES"] = "true"  # the mail server is here
        with _demo(environment, Path(directory) / "dev.log") as (url, token):
            api = requests.Session()
            api.headers["Authorization"] = f"Bearer {token}"
            for path, given in (("channels", _mails_to(mails)), ("rules", RULE), ("schedules", FAILING)):
                api.post(f"{url}/api/v3/{path}", json=given, timeout=30).raise_for_status()
            pause = ["queue", "pause", "sitemap_jobs", "--reason", "quota until Monday"]
            subprocess.run([sys.executable, "manage.py", *pause], cwd=PROJECT_ROOT, env=environment, check=True)
            eventually(
                lambda: len(api.get(f"{url}/api/v3/replicas", timeout=30).json()["items"]) == REPLICAS, START_SECONDS
            )
            time.sleep(minutes * 60)
            with _logged_in(url, token) as page:
                _save(page, "overview.png")
                page.goto("/timeline")
                _save(page, "grid.png")
                page.goto(f"/notifications/{_delivered(api, url)}")
                _save(page, "notification.png")
                page.goto(f"/scans/{_scan_with_most_changes(api, url)}")
                _save(page, "scan.png")


def _mails_to(mails: MailServer) -> dict[str, Any]:
    server = {"host": "127.0.0.1", "port": mails.port, "security": "none"}
    addresses = {"from": "scheduler@example.com", "to": ["night-shift@example.com"]}
    return {"name": "night-shift", "kind": "email", "config": {**server, **addresses}}


def _delivered(api: requests.Session, url: str) -> str:
    """The first delivery; the mail server has received it."""
    items: list[dict[str, Any]] = api.get(f"{url}/api/v3/deliveries", timeout=30).json()["items"]
    return str(next(item for item in reversed(items) if item["state"] == "sent")["delivery_id"])


@contextmanager
def _demo(environment: dict[str, str], log: Path) -> Iterator[tuple[str, str]]:
    """The dashboard's address and its token."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "dev", "--replicas", str(REPLICAS)],
            cwd=PROJECT_ROOT,
            env=environment,
            stdout=stream,
            stderr=stream,
        )
    try:
        ((url, token),) = eventually(lambda: re.findall(WAY_IN, log.read_text()), START_SECONDS)
        yield url, token
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        stop_servers(Path(environment["EMBEDDED_DIR"]))


@contextmanager
def _logged_in(url: str, token: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        program = str(find_browser(load_settings().scan_browser))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, timezone_id="Europe/Berlin", viewport={"width": 1280, "height": 720})
        page.goto("/")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        yield page
        browser.close()


def _scan_with_most_changes(api: requests.Session, url: str) -> str:
    items: list[dict[str, Any]] = api.get(f"{url}/api/v3/scans", timeout=30).json()["items"]
    best = max(items, key=lambda item: sum(count > 0 for count in item["summary"].get("changes", {}).values()))
    return str(best["scan_id"])


def _save(page: Page, name: str) -> None:
    page.wait_for_timeout(DRAW_SECONDS * 1000)  # the charts draw themselves after the page has loaded
    size = len(page.screenshot(path=IMAGES / name, full_page=True))
    sys.stdout.write(f"{name}: {size:,} bytes\n")
    if size > MOST_BYTES:
        raise SystemExit(f"{name} is larger than {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    take(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
