"""The kinds of channels: the schema of each one's configuration, and how it sends."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from enhanced_scheduler.model_errors import reason_of
from services.errors import InvalidInput, Problem
from services.notifications.channels import apprise, email, webhook
from services.notifications.channels.sending import Envelope, Surroundings

Config = webhook.WebhookConfig | email.EmailConfig | apprise.AppriseConfig
MODELS: Mapping[str, type[BaseModel]] = {
    "webhook": webhook.WebhookConfig,
    "email": email.EmailConfig,
    "apprise": apprise.AppriseConfig,
}
OF_ADMINS = frozenset({"apprise"})  # it does not pass the address guard


def config_of(kind: str, given: Mapping[str, Any]) -> Config:
    """Raises InvalidInput with every wrong field."""
    try:
        found = MODELS[kind].model_validate(dict(given))
    except ValidationError as error:
        raise InvalidInput(*(_problem(kind, each) for each in error.errors(include_url=False))) from None
    assert isinstance(found, Config)  # noqa: S101 - MODELS has no other
    return found


def send(config: Config, envelope: Envelope, around: Surroundings) -> str:
    """The receiver's response. Raises SendFailed."""
    match config:
        case webhook.WebhookConfig():
            return webhook.send(config, envelope, around)
        case email.EmailConfig():
            return email.send(config, envelope, around)
        case apprise.AppriseConfig():
            return apprise.send(config, envelope, around)


def _problem(kind: str, error: Mapping[str, Any]) -> Problem:
    unknown = f"is no field of kind {kind} (known: {', '.join(_names(kind))})"
    return Problem(".".join(map(str, ("config", *error["loc"]))), reason_of(error["msg"], unknown))


def check_names(kind: str, given: Iterable[str]) -> None:
    """For fields to remove: a wrong name would silently remove nothing."""
    known = _names(kind)
    reason = f"is no field of kind {kind} (known: {', '.join(known)})"
    if wrong := [Problem(f"config.{name}", reason) for name in given if name not in known]:
        raise InvalidInput(*wrong)


def _names(kind: str) -> list[str]:
    return [field.alias or name for name, field in MODELS[kind].model_fields.items()]
