"""The configuration of `http_request`, and the resolution of its references to secrets. No I/O."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from enhanced_scheduler.results import PermanentFailure
from enhanced_scheduler.texts import map_texts
from services.checks.job_secrets import REFERENCE, JobSecrets
from services.fetching import Private
from services.jobs.schema import LONG

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Headers that decide where a message ends or which host receives it: they would bypass the address check.
OF_THE_CONNECTION = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te"}
    | {"trailer", "transfer-encoding", "upgrade"}
)

Status = Annotated[int, Field(ge=100, le=599)]
Lookup = Callable[[str], str | None]


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class HttpRequestConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(max_length=8192, description="what to call; http:// or https://")
    method: Annotated[Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], BeforeValidator(_upper)] = (
        Field("GET", description="in upper or lower case")
    )
    headers: dict[str, str] = Field(default_factory=dict, description="sent in addition to the scheduler's own headers")
    json_body: Any = Field(None, alias="json", description="sent as the JSON body; not together with body")
    body: Annotated[str, Field(json_schema_extra={"format": LONG})] | None = Field(
        None, description="sent as it is, in UTF-8; not together with json"
    )
    timeout_seconds: float | None = Field(
        None, gt=0, le=86_400, description="time limit of the whole call; unset: REQUEST_TIMEOUT"
    )
    expected_status: Status | Annotated[list[Status], Field(min_length=1)] | None = Field(
        None, description="one status or a list; any other one is a failure. Unset: 200 to 299"
    )
    follow_redirects: bool = Field(True, description="false: a redirect is a response like any other")

    @field_validator("url")
    @classmethod
    def _can_be_called(cls, url: str) -> str:
        if not REFERENCE.search(url):
            check_url(url)
        return url

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a header name")
            if name.lower() in OF_THE_CONNECTION:
                raise ValueError(f"{name!r} is set by the connection, not by a job")
            if re.search(r"[\r\n\0]", value):
                raise ValueError(f"the value of {name} must be one line")
        return headers

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.body is not None and "json_body" in self.model_fields_set:
            raise ValueError("json and body are both given; keep one of them")
        return self

    def expects(self, status_code: int) -> bool:
        match self.expected_status:
            case None:
                return 200 <= status_code <= 299
            case int(expected):
                return status_code == expected
            case several:
                return status_code in several


@dataclass(frozen=True, slots=True)
class Resolved:
    """The request with its secrets filled in; never stored, never logged."""

    url: str
    headers: dict[str, str]
    json: Any
    body: bytes | None
    secrets: frozenset[str]
    private: Private

    def __repr__(self) -> str:
        return "Resolved(***)"


def check_url(url: str) -> None:
    """Raises ValueError for a URL that can never be called."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueError("must start with http:// or https://")
    if not parts.hostname:
        raise ValueError("names no host")
    _ = parts.port  # raises for an invalid port


def resolve(config: HttpRequestConfig, lookup: Lookup, allowed: JobSecrets) -> Resolved:
    """Fill in the secrets. Raises PermanentFailure for a missing or forbidden secret, and for an invalid URL."""
    secrets: set[str] = set()

    def fill(text: str) -> str:
        return REFERENCE.sub(lambda reference: _secret(reference[1], lookup, secrets), text)

    named = REFERENCE.findall(json.dumps([config.url, config.headers, config.json_body, config.body]))
    for name in named:
        if name not in allowed.hosts:
            raise PermanentFailure(str(allowed.refusal(name, "")))
    url = fill(config.url)
    try:
        check_url(url)
    except ValueError as error:
        raise PermanentFailure(f"url {config.url!r}: {error}") from None
    for name in named:
        if refused := allowed.refusal(name, urlsplit(url).hostname or ""):
            raise PermanentFailure(refused)
    body = None if config.body is None else fill(config.body)
    return Resolved(
        url=url,
        headers={name: fill(value) for name, value in config.headers.items()},
        json=map_texts(config.json_body, fill),
        body=None if body is None else body.encode(errors="replace"),
        private=Private(
            headers=[name for name, value in config.headers.items() if _refers(value)],
            body=_refers(config.body) or _refers(config.json_body),
        ),
        secrets=frozenset(secrets | _credentials(url)),
    )


def _secret(name: str, lookup: Lookup, secrets: set[str]) -> str:
    value = lookup(name)
    if value is None:
        raise PermanentFailure(f"the environment variable {name} is not set")
    secrets.add(value)
    return value


def _refers(value: Any) -> bool:
    return REFERENCE.search(json.dumps(value, ensure_ascii=False)) is not None


def _credentials(url: str) -> set[str]:
    """A password inside a URL is a secret even if it was written there; requests sends it base64-encoded."""
    parts = urlsplit(url)
    if parts.password is None:
        return set()
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
    return {parts.password, unquote(parts.password), base64.b64encode(pair.encode(errors="replace")).decode()} - {""}
