"""What every kind of channel receives and returns: an envelope, its surroundings, and the receiver's response."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from config import Settings, environment_secret
from enhanced_scheduler.texts import Mask, cut, masked, storable
from services.checks.job_secrets import JobSecrets
from services.errors import SchedulerError
from services.notifications.messages import Message

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
SEND_SECONDS = 20.0  # for one attempt, whatever the other side does
MAX_ANSWER = 500  # characters of it that are kept
SHORTEST_SECRET = 5

Lookup = Callable[[str], str | None]


class SendFailed(SchedulerError):
    """The message may not have arrived. `retry_after_seconds`: requested by the receiver."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Envelope:
    """`delivery_id` is the same in every attempt: the receiver uses it to drop duplicates."""

    delivery_id: UUID
    created_at: datetime
    message: Message


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One for each attempt. `mask` knows every secret that was filled in."""

    settings: Settings
    lookup: Lookup = environment_secret
    mask: Mask = field(default_factory=Mask)

    def fill(self, text: str, host: str) -> str:
        """With the secrets that may be sent to this host; raises SendFailed for a missing or forbidden one."""
        allowed = JobSecrets.parse(self.settings.job_secrets)

        def secret(reference: re.Match[str]) -> str:
            if refused := allowed.refusal(reference[1], host):
                raise SendFailed(refused)
            value = self.lookup(reference[1])
            if value is None:
                raise SendFailed(f"the environment variable {reference[1]} is not set")
            self.mask.add(value)
            return value

        return REFERENCE.sub(secret, text)

    def hide(self, part: str) -> None:
        """Mask a possible key; a short text is not a key, and masking it would hide ordinary words."""
        if len(part) >= SHORTEST_SECRET:
            self.mask.add(part)

    def shown(self, text: str) -> str:
        """As it may be stored and read by anyone."""
        return cut(masked(self.mask(storable(" ".join(text.split())))), MAX_ANSWER)


def is_reference(text: str) -> bool:
    return REFERENCE.fullmatch(text) is not None
