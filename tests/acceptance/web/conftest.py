"""A browser, a web process and a replica for all tests of one file: each of them has schedules of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from services.embedded import Addresses
from services.scanning.engines.browser.process import find_browser
from services.web.auth.roles import Role
from services.web.auth.tokens import ApiTokens
from tests.support.dashboard import PATIENCE_MS, log_in
from tests.support.pipeline_stand_ins import PipelineWorld
from tests.support.replicas import QUICK, Cluster
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser(None)), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def cluster(
    new_database: Callable[[str | None], str],
    template: str,
    servers: Addresses,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    url = new_database(template)
    db = DatabaseConnection(url)
    cluster = Cluster(
        db, {**QUICK, "DATABASE_URL": url, "REDIS_URL": servers.redis_url}, tmp_path_factory.mktemp("web")
    )
    cluster.start(1)
    yield cluster
    cluster.end()
    db.close()


@pytest.fixture(scope="module")
def town() -> Iterator[PipelineWorld]:
    """Where the web process finds Google's places."""
    with PipelineWorld() as world:
        yield world


@pytest.fixture(scope="module")
def web(cluster: Cluster, town: PipelineWorld) -> Iterator[str]:
    """The address of a `manage.py web`."""
    log = cluster.directory / "web.log"
    environment = {
        **cluster.environment,
        **town.environment,
        "PATH": os.defpath,
        "WEB_PORT": "0",
        "WEB_RATE_LIMIT_PER_MINUTE": "0",
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "web"],
            cwd=PROJECT_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        )  # fmt: skip
    eventually(lambda: "serving on" in log.read_text() or process.poll() is not None, 120)
    assert process.poll() is None, log.read_text()
    yield re.findall(r"serving on (\S+)", log.read_text())[0]
    process.terminate()
    process.wait(30)


@pytest.fixture
def token(cluster: Cluster) -> str:
    return ApiTokens(cluster.db).create(f"olga-{uuid4().hex[:6]}", Role.ADMIN, "test").text


@pytest.fixture
def page(token: str, web: str, browser: Browser) -> Iterator[Page]:
    """Logged in, at the overview. What the page complains about in its console fails the test."""
    context = browser.new_context(base_url=web, timezone_id="Europe/Berlin", viewport={"width": 1360, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    log_in(page, token)
    yield page
    context.close()
    assert complaints == []
