"""Credentials written into a job's configuration instead of a `${env:NAME}` reference. Pure.

They are recognised by their field names and by their form, masked for viewers, and reported as a warning on saving. A
secret with neither stays visible: do not write secrets into a configuration.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from enhanced_scheduler.texts import HIDDEN

MOST_WARNINGS = 20
_NAME = re.compile(
    r"(?i)passw|passphrase|pwd|secret|token|(api|access|private|auth)[^a-z]?key|^key$|authorization|cookie$|credential"
    r"|signature"
)
_NO_REFERENCE = r"(?!\$\{env:)"
_USERINFO = re.compile(rf"(://[^:/@?#\s]*):{_NO_REFERENCE}[^@/\s]+@")
_QUERY = re.compile(
    rf"(?i)([?&][\w.-]*(?:key|token|secret|passw|pwd|sig|auth|credential)[\w.-]*=){_NO_REFERENCE}[^&#\s]+"
)
_PATH = re.compile(r"^(https?://[^/?]*)[/?](?!.*\$\{env:).+", re.IGNORECASE)
_SCHEME = re.compile(rf"(?i)^(bearer|basic|token) +{_NO_REFERENCE}\S.*")
_IN_BODY = re.compile(
    rf"(?i)([\w-]*(?:passw|pwd|secret|token|api_?key|credential)[\w-]*[\"']?\s*[:=]\s*[\"']?){_NO_REFERENCE}[^\"'&\s,}}]+"
)


def without_credentials(value: Any, name: str = "") -> Any:
    """The same value with *** where a credential is; references to secrets stay."""
    if isinstance(value, Mapping):
        inside = name if _NAME.search(name) else ""
        return {key: without_credentials(item, inside or str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(item, name) for item in value]
    if isinstance(value, str):
        return _masked_text(value, name)
    return HIDDEN if isinstance(value, int | float) and not isinstance(value, bool) and _NAME.search(name) else value


def credential_warnings(config: Any) -> list[str]:
    """One sentence for each field with a credential in it, up to a limit."""
    fields = islice(_differing(config, without_credentials(config), "job_config"), MOST_WARNINGS)
    return [
        f"{field} contains a credential, which every operator can read: keep it in an environment variable of the "
        "replicas, name that in JOB_SECRETS, and write ${env:NAME} here"
        for field in fields
    ]


def _masked_text(text: str, name: str) -> str:
    if name == "ping_url":
        return _PATH.sub(rf"\1/{HIDDEN}", text)
    if _NAME.search(name) and text and "${env:" not in text:
        return HIDDEN
    text = _QUERY.sub(rf"\1{HIDDEN}", _USERINFO.sub(rf"\1:{HIDDEN}@", text))
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    return _IN_BODY.sub(rf"\1{HIDDEN}", text) if name == "body" else text


def _differing(value: Any, masked: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _differing(item, masked[key], f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _differing(item, masked[index], f"{path}.{index}")
    elif value != masked:
        yield path
