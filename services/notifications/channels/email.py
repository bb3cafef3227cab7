"""E-mail over SMTP: through the address guard, with TLS by default, and a password only from the environment."""

import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime, parseaddr
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from services.errors import BlockedAddress
from services.fetching import Deadline, connect_from, failure_of
from services.notifications.channels.sending import SEND_SECONDS, Envelope, SendFailed, Surroundings, is_reference

MOST_RECIPIENTS = 50
PORTS = {"starttls": 587, "tls": 465, "none": 25}
# ASCII only: not every server on a mail's way takes other addresses.
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


class EmailConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = Field(
        pattern=r"^[A-Za-z0-9:]([A-Za-z0-9.:-]*[A-Za-z0-9:])?$", max_length=253, description="SMTP server"
    )
    port: int | None = Field(
        None, ge=1, le=65535, description="unset: 587 with starttls, 465 with tls, 25 with security none"
    )
    security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="`starttls`, `tls` from the first byte, or `none`; certificates are always checked"
    )
    user: str | None = Field(None, max_length=255, description="login; with password")
    password: str | None = Field(None, description="a reference `${env:NAME}`; JOB_SECRETS must list the name")
    sender: str = Field(alias="from", max_length=320, description="`name@example.com` or `Name <name@example.com>`")
    to: list[str] = Field(min_length=1, max_length=MOST_RECIPIENTS, description="addresses of the recipients")

    @field_validator("password")
    @classmethod
    def _from_the_environment(cls, password: str | None) -> str | None:
        if password is not None and not is_reference(password):
            raise ValueError("must be a reference ${env:NAME}: passwords are not stored")
        return password

    @field_validator("sender")
    @classmethod
    def _is_a_sender(cls, sender: str) -> str:
        checked_address(parseaddr(sender)[1])
        if not sender.isprintable():
            raise ValueError("must be one line")
        return sender

    @field_validator("to")
    @classmethod
    def _are_addresses(cls, recipients: list[str]) -> list[str]:
        return [checked_address(each) for each in recipients]

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password must be given together")
        if self.password is not None and self.security == "none":
            raise ValueError("security is none, but a password is sent over TLS only")
        return self

    def shown(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, mode="json")


def checked_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text) or ".." in text:
        raise ValueError(f"{text[:100]!r} is not an e-mail address")
    return text


def mail_of(config: EmailConfig, envelope: Envelope) -> EmailMessage:
    """The Message-ID is the same in every attempt."""
    name, address = parseaddr(config.sender)
    mail, message = EmailMessage(SMTP_POLICY), envelope.message
    mail["From"] = Address(display_name=name, addr_spec=address)
    mail["To"] = ", ".join(config.to)
    mail["Subject"] = message.title
    mail["Date"] = format_datetime(envelope.created_at)
    mail["Message-ID"] = f"<{envelope.delivery_id}@{address.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"  # no answer of somebody who is on holiday
    mail.set_content((message.lines or message.title) + "\n")
    return mail


def send(config: EmailConfig, envelope: Envelope, around: Surroundings) -> str:
    """Refused recipients are named in the answer; only if all were refused has it failed."""
    password = None if config.password is None else around.fill(config.password, config.host)
    mail, sender = mail_of(config, envelope), parseaddr(config.sender)[1]
    deadline = Deadline(SEND_SECONDS)
    place = f"SMTP at {config.host}:{config.port or PORTS[config.security]}"
    try:
        with _connected(config, around, deadline) as client:
            if config.user is not None and password is not None:
                client.login(config.user, password)
            refused = client.send_message(mail, sender, config.to)
    except (smtplib.SMTPException, OSError, ValueError, BlockedAddress) as error:
        late = f"{place}: no response in time"  # whatever the line that was cut off means
        raise SendFailed(late if _is_over(deadline) else around.shown(_reason(error, place))) from None
    accepted = f"accepted for {len(config.to) - len(refused)} of {len(config.to)}"
    return around.shown(f"{accepted}; refused: {_refusals(refused)}") if refused else accepted


def _reason(error: Exception, place: str) -> str:
    match error:
        case smtplib.SMTPRecipientsRefused():
            return f"{place} refused every recipient: {_refusals(error.recipients)}"
        case smtplib.SMTPResponseException():
            return f"{place} answered {error.smtp_code} {_text(error.smtp_error)}"
        case smtplib.SMTPServerDisconnected():
            return f"{place} closed the connection"
        case smtplib.SMTPException():
            return f"{place}: {error}"
        case _:
            return str(failure_of(error, place))


class _Client(smtplib.SMTP):
    def __init__(self, config: EmailConfig, around: Surroundings, deadline: Deadline) -> None:
        self._config, self._around, self._deadline = config, around, deadline
        super().__init__(local_hostname=socket.gethostname() or "localhost", timeout=deadline.left())
        self._host = config.host  # the name that the certificate must have

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = connect_from(self._around.settings, host, port, timeout)
        try:
            self.watched = plain.dup()
            if self._config.security != "tls":
                return plain
            return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise


@contextmanager
def _connected(config: EmailConfig, around: Surroundings, deadline: Deadline) -> Iterator[_Client]:
    """smtplib's timeout is per read: a server that sends a byte now and then could hold us for ever."""
    client = _Client(config, around, deadline)
    over = threading.Timer(deadline.left(), lambda: _cut_off(client))
    over.daemon = True
    over.start()
    try:
        code, answer = client.connect(config.host, config.port or PORTS[config.security])
        if code != 220:
            raise smtplib.SMTPResponseException(code, answer)
        if config.security == "starttls":
            client.starttls(context=ssl.create_default_context())
        yield client
        with suppress(smtplib.SMTPException, OSError):  # the mail was accepted, whatever comes now
            client.quit()
    finally:
        over.cancel()
        client.close()
        if (watched := getattr(client, "watched", None)) is not None:
            watched.close()


def _cut_off(client: _Client) -> None:
    with suppress(OSError, AttributeError):
        client.watched.shutdown(socket.SHUT_RDWR)


def _is_over(deadline: Deadline) -> bool:
    try:
        return deadline.left() <= 0
    except TimeoutError:
        return True


def _refusals(refused: dict[str, tuple[int, bytes]]) -> str:
    return "; ".join(f"{address} ({code} {_text(said)})" for address, (code, said) in list(refused.items())[:5])


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
