"""Everything that the library apprise knows: Slack, Teams, PagerDuty, ntfy, …, each as one URL.

It runs in a process of its own: its services connect where they like, past our address guard and its time limits, and
a process can be ended. So only administrators may add such a channel. Its program is apprise_child.py.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, field_validator

from config import child_environment
from enhanced_scheduler.extras import how_to_install, is_installed
from enhanced_scheduler.texts import HIDDEN
from services.notifications.channels.sending import SEND_SECONDS, Envelope, SendFailed, Surroundings
from services.notifications.messages import Severity

CHILD = Path(__file__).with_name("apprise_child.py")
KINDS = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.ERROR: "failure", Severity.RESOLVED: "success"}
# Of our environment; it holds the passwords of the servers, too.
PASSED_ON = re.compile(r"(?i)PATH|HOME|LANG|LC_.*|TZ|SSL_CERT_(FILE|DIR)|(HTTPS?|ALL|NO)_PROXY|REQUESTS_CA_BUNDLE")
# These tell something to whoever sits at the machine, or write into its files.
LOCAL = frozenset({"dbus", "kde", "qt", "glib", "gnome", "macosx", "windows", "syslog", "rsyslog", "file"})


class AppriseConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(
        max_length=8192, description="as apprise writes it, such as `ntfy://topic` or `slack://${env:SLACK}/#ops`"
    )

    @field_validator("url")
    @classmethod
    def _names_a_service(cls, url: str) -> str:
        found = re.match(r"([a-z][a-z0-9+.-]*)://\S", url)
        if found is None or not url.isprintable():
            raise ValueError("must begin with the name of a service and ://")
        if found[1] in LOCAL:
            raise ValueError(f"{found[1]}:// reaches only this machine")
        return url

    @property
    def service(self) -> str:
        return self.url.partition("://")[0]

    def shown(self) -> dict[str, Any]:
        return {"url": f"{self.service}://{HIDDEN}"}


def why_unusable(config: AppriseConfig) -> str | None:
    """Why apprise would reject it, checked before it is stored; None if it accepts it."""
    if not is_installed("apprise"):
        return f"needs {how_to_install('apprise')}"
    try:
        answer = _ask({"url": config.url, "check": True})
    except SendFailed as failed:
        return str(failed)
    return None if answer.get("ok") or "${env:" in config.url else "apprise does not understand this URL"


def send(config: AppriseConfig, envelope: Envelope, around: Surroundings) -> str:
    """In JOB_SECRETS the name of the service stands where a host would."""
    if not is_installed("apprise"):
        raise SendFailed(f"this replica needs {how_to_install('apprise')}")
    message, url = envelope.message, around.fill(config.url, config.service)
    _hide_parts(url, around)
    wanted = {"url": url, "title": message.title, "body": message.lines, "type": KINDS[message.severity]}
    answer = _ask(wanted)
    if answer.get("ok"):
        return f"{config.service} accepted it"
    said = around.shown(str(answer.get("said") or "no reason given"))
    raise SendFailed(f"{config.service} rejected it: {said}")


def _ask(wanted: dict[str, Any]) -> dict[str, Any]:
    environment = {name: value for name, value in child_environment().items() if PASSED_ON.fullmatch(name)}
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-P", str(CHILD), f"{SEND_SECONDS:.0f}"],
            input=json.dumps(wanted).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SEND_SECONDS,
            check=False,
        )
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise SendFailed("no response in time") from None
    except (OSError, ValueError):
        raise SendFailed("the process that calls apprise failed") from None
    return found if isinstance(found, dict) else {}


def _hide_parts(url: str, around: Surroundings) -> None:
    """Any part of such a URL may be a key, and what apprise logs may name it."""
    rest = url.partition("://")[2]
    for part in {rest, *re.split(r"[/@:?&=#,]", rest)}:
        for spelling in {part, unquote(part)}:
            around.hide(spelling)
