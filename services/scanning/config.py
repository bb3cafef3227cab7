"""The configuration of a cookie scan: the schedule's `job_config`, merged over its scan profile. No I/O."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from enhanced_scheduler.model_errors import reason_of
from services.checks.page_addresses import MAX_PAGE_ADDRESS
from services.errors import Problem
from services.scanning.findings import EngineName

# Spelling in other systems -> ours, which is stored.
API_SPELLING = {
    "maxPages": "max_pages",
    "scanDepth": "scan_depth",
    "maxRetries": "max_retries",
    "customPages": "custom_pages",
    "allowDeepScan": "allow_deep_scan",
    "acceptSelector": "accept_selector",
}

PageAddress = Annotated[str, Field(min_length=1, max_length=MAX_PAGE_ADDRESS)]


class CookieScanConfig(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
    )

    max_pages: int = Field(50, ge=1, le=10_000, description="pages visited at most")
    scan_depth: int = Field(
        3, ge=0, le=100, description="clicks away from the start page; 0: only the start page and the custom pages"
    )
    max_retries: int = Field(2, ge=0, le=10, description="further attempts at one page")
    custom_pages: list[PageAddress] = Field(
        default_factory=list, max_length=1000, description="paths or addresses of the site, visited first"
    )
    allow_deep_scan: bool = Field(False, description="true: with a browser, unless engine says otherwise")
    accept_selector: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="CSS selector of the button that accepts cookies; needs the browser engine",
    )
    description: str | None = Field(None, max_length=2000, description="a comment; has no effect")
    engine: Literal["http", "browser"] | None = Field(
        None, description="how pages are visited; unset: browser with allow_deep_scan, else http"
    )
    respect_robots: bool = Field(True, description="skip pages that robots.txt forbids")
    delay_seconds: float = Field(0.5, ge=0, le=60, description="between two pages")
    page_timeout_seconds: float = Field(
        30.0, ge=1, le=300, description="time limit for a page and everything that it embeds"
    )
    user_agent: str | None = Field(None, min_length=1, max_length=500, description="unset: the engine's own")
    base_url: str | None = Field(
        None, max_length=MAX_PAGE_ADDRESS, description="where to start; unset: https://<domain>/, then http://"
    )

    @model_validator(mode="before")
    @classmethod
    def _in_our_spelling(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        for theirs, ours in API_SPELLING.items():
            if theirs in given and ours in given:
                raise ValueError(f"{theirs} and {ours} are the same field; keep one of them")
        return one_spelling(given)

    @field_validator("custom_pages")
    @classmethod
    def _pages_of_a_site(cls, pages: list[str]) -> list[str]:
        for page in pages:
            _check_address(page, relative=True)
        return pages

    @field_validator("base_url")
    @classmethod
    def _start_of_a_site(cls, url: str | None) -> str | None:
        if url is not None:
            _check_address(url, relative=False)
        return url

    @field_validator("user_agent", "accept_selector")
    @classmethod
    def _one_line(cls, text: str | None) -> str | None:
        if text is not None and not text.isprintable():
            raise ValueError("must be one line without control characters")
        return text

    @field_validator("user_agent")
    @classmethod
    def _fits_a_header(cls, text: str | None) -> str | None:
        if text is not None and not text.isascii():
            raise ValueError("must consist of ASCII characters")
        return text

    @property
    def engine_name(self) -> EngineName:
        if self.engine is not None:
            return EngineName(self.engine)
        return EngineName.BROWSER if self.allow_deep_scan else EngineName.HTTP

    def given(self) -> dict[str, Any]:
        """Only the fields that were given, as they are stored with a scan."""
        return self.model_dump(mode="json", exclude_unset=True)


def one_spelling(given: Mapping[str, Any]) -> dict[str, Any]:
    return {API_SPELLING.get(name, name): value for name, value in given.items()}


def config_problems(given: Mapping[str, Any]) -> list[Problem]:
    """All errors of a configuration, by field."""
    try:
        CookieScanConfig.model_validate(given)
    except ValidationError as error:
        return [
            Problem(
                ".".join(map(str, item["loc"])) or "config", reason_of(item["msg"], "is not a field of a cookie scan")
            )
            for item in error.errors(include_url=False, include_input=False)
        ]
    return []


def _check_address(address: str, *, relative: bool) -> None:
    """Raises ValueError for an address that cannot be a page."""
    if not address.isprintable() or " " in address:
        raise ValueError(f"{address[:60]!r} contains whitespace or control characters")
    parts = urlsplit(address)
    if relative and not parts.scheme and not parts.netloc:
        return
    if parts.scheme not in ("http", "https") or not parts.hostname:
        wanted = "a path such as /imprint, or an address of the site" if relative else "an address"
        raise ValueError(f"{address[:60]!r} is not {wanted} that starts with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or a password")
    _ = parts.port  # raises for an invalid port
