"""Webhooks, signed as in https://www.standardwebhooks.com: through the address guard, without following redirects."""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from enhanced_scheduler.texts import HIDDEN
from services.errors import Problem
from services.fetching import (
    FETCH_ERRORS,
    Deadline,
    Private,
    decode_text,
    failure_of,
    parse_retry_after,
    read_beginning,
    requoted,
    session_from,
)
from services.job_types.http_config import HEADER_NAME, OF_THE_CONNECTION, check_url
from services.notifications.channels.sending import (
    REFERENCE,
    SEND_SECONDS,
    Envelope,
    SendFailed,
    Surroundings,
    is_reference,
)

PREFIX = "whsec_"
SECRET_BYTES, SHORTEST, LONGEST = 32, 24, 64
EXCERPT_BYTES = 512
HEADER_VALUE = re.compile(r"(?=\S)[ -~\t]*(?<=\S)|")


class WebhookConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(max_length=8192, description="URL to call with POST; http:// or https://")
    secret: str = Field(
        description=f"signs each message: `{PREFIX}` and base64 of {SHORTEST} to {LONGEST} bytes, or `${{env:NAME}}`; "
        "not given: a new one, shown once"
    )
    headers: dict[str, str] = Field(default_factory=dict, description="sent in addition, such as Authorization")

    @field_validator("url")
    @classmethod
    def _can_be_called(cls, url: str) -> str:
        if not REFERENCE.search(url):
            check_url(url)
        elif not is_reference(url) and not re.match(r"https?://[^/$]+(/|$)", url):
            raise ValueError("a reference stands for the whole URL, or for a part after the host")
        return url

    @field_validator("secret")
    @classmethod
    def _can_sign(cls, secret: str) -> str:
        if not is_reference(secret):
            key_of(secret)
        return secret

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a header name")
            if name.lower() in OF_THE_CONNECTION or name.lower().startswith("webhook-"):
                raise ValueError(f"{name!r} is set by the scheduler")
            if not HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the value of {name} must be one line of ASCII, without blanks around it")
        return headers

    def shown(self) -> dict[str, Any]:
        """A header's value, and what follows the host of a URL, is often a secret."""
        headers = {name: value if is_reference(value) else HIDDEN for name, value in self.headers.items()}
        secret = self.secret if is_reference(self.secret) else HIDDEN
        return {"url": _shown_url(self.url), "secret": secret, "headers": headers}


def hidden_from(former: Mapping[str, Any], changed: Mapping[str, Any]) -> Problem | None:
    """Header values are hidden: sent to another address, they would reach anyone who may change the address."""
    old, new = urlsplit(str(former.get("url"))), urlsplit(str(changed.get("url")))
    if (old.scheme, old.netloc) == (new.scheme, new.netloc):
        return None
    before, now = former.get("headers") or {}, changed.get("headers") or {}
    kept = [name for name, value in now.items() if before.get(name) == value and not is_reference(value)]
    if not kept:
        return None
    stored = f"{', '.join(kept)} was stored for {old.hostname or 'another address'}, and is not sent to another one"
    return Problem("config.headers", f"{stored}: give the headers again, or remove them")


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """Raises ValueError with the reason."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not SHORTEST <= len(key) <= LONGEST:
        raise ValueError(f"must be {PREFIX} and base64 of {SHORTEST} to {LONGEST} bytes, or ${{env:NAME}}")
    return key


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def body_of(envelope: Envelope) -> bytes:
    data = {"id": str(envelope.delivery_id), **envelope.message.to_json()}
    content = {"type": envelope.message.event, "timestamp": envelope.created_at.isoformat(), "data": data}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def send(config: WebhookConfig, envelope: Envelope, around: Surroundings) -> str:
    url = _filled_url(config.url, around)
    host = urlsplit(url).hostname or ""
    try:
        secret = around.fill(config.secret, host)
        around.hide(secret)
        key = key_of(secret)
    except ValueError as error:
        raise SendFailed(f"secret: {error}") from None
    own, body, now = {"Content-Type": "application/json"}, body_of(envelope), int(time.time())
    for name, value in config.headers.items():
        own[name] = around.fill(value, host)
        around.hide(own[name])
        if not HEADER_VALUE.fullmatch(own[name]):
            raise SendFailed(f"header {name}: its value must be one line of ASCII, without blanks around it")
    own["webhook-id"], own["webhook-timestamp"] = str(envelope.delivery_id), str(now)
    own["webhook-signature"] = signature(key, str(envelope.delivery_id), now, body)
    deadline = Deadline(min(SEND_SECONDS, around.settings.request_timeout))
    try:
        with session_from(around.settings) as session:
            prepared = session.prepare("POST", url, own, data=body)
            private = Private(headers=list(config.headers), body=True)
            with closing(session.open(prepared, deadline.left, private, max_redirects=0)) as response:
                status, headers = response.status_code, response.headers
                excerpt, _ = read_beginning(response, EXCERPT_BYTES, deadline.left)
    except FETCH_ERRORS as error:
        raise SendFailed(str(failure_of(error, f"POST {host}"))) from None
    if 200 <= status <= 299:
        return f"answered {status}"
    said = around.shown(decode_text(excerpt, headers.get("Content-Type", "")))
    words = f"{host} answered {status}" + (f": {said}" if said else "")
    raise SendFailed(words, parse_retry_after(headers.get("Retry-After")))


def _filled_url(url: str, around: Surroundings) -> str:
    """The host is known before a secret is filled in, unless the whole URL is the secret."""
    host = "" if is_reference(url) else urlsplit(url).hostname or ""
    filled = around.fill(url, host)
    parts = urlsplit(filled)
    values = [value for _, value in parse_qsl(parts.query)]
    for part in (filled, parts.path.strip("/"), parts.query, *values, *parts.path.split("/")):
        around.hide(part)
        around.hide(requoted(part))
    try:
        check_url(filled)
    except ValueError as error:
        raise SendFailed(f"url: {error}") from None
    return filled


def _shown_url(url: str) -> str:
    if is_reference(url):
        return url
    parts = urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return place if parts.path in ("", "/") and not parts.query else f"{place}/{HIDDEN}"
