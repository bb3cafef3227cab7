"""A real SMTP server on a free port of 127.0.0.1, which keeps what it accepts.

with MailServer() as mails:
    mails.refuse["a@b.example"] = "550 no such user"
    …
    (mail,) = mails.received
"""

import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any, Self, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class MailServer:
    """`login`: user and password that it asks for."""

    tls: ssl.SSLContext | None = None
    login: tuple[str, str] | None = None
    refuse: dict[str, str] = field(default_factory=dict)  # recipient -> answer
    answer: str = "250 queued"
    received: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self._controller.port_of_server()

    def __enter__(self) -> Self:
        options: dict[str, Any] = {"tls_context": self.tls, "require_starttls": self.tls is not None}
        if self.login is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True}
        self._controller = _Controller(self, hostname="127.0.0.1", port=0, **options)
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        given = cast(LoginPassword, data)
        return AuthResult(success=(given.login.decode(), given.password.decode()) == self.login, handled=False)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            content = cast(bytes, envelope.content)
            self.received.append(BytesParser(policy=default).parsebytes(content))
            self.recipients.append(list(envelope.rcpt_tos))
        return self.answer


class _Controller(Controller):
    """Knows its own port once it listens, and looks for itself there."""

    def port_of_server(self) -> int:
        server: Any = self.server
        return int(server.sockets[0].getsockname()[1])

    def _trigger_server(self) -> None:
        self.port = self.port_of_server()
        super()._trigger_server()  # type: ignore[no-untyped-call]
