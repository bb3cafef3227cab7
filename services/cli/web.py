"""`manage.py web`: the HTTP API and the dashboard, optionally with a replica in the same process."""

from typing import Annotated, Any

import typer

from config import get_settings
from services.telemetry.logs import configure_logging


def web(
    host: Annotated[str | None, typer.Option(help="Bind address; default: WEB_HOST.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: WEB_PORT; 0: any free port.")] = None,
    with_replica: Annotated[bool, typer.Option("--with-replica", help="Also run a replica in this process.")] = False,
) -> None:
    """Serve the HTTP API and the dashboard until Ctrl-C.

    With neither JWT_SECRET_KEY nor a token (`manage.py token create`), it listens on localhost only and prints a token
    that is valid until it stops.

    Examples:

      manage.py web

      manage.py web --host 0.0.0.0 --port 8080 --with-replica
    """
    from services.web.server import serve  # only this command loads the web framework

    given: dict[str, Any] = {"web_host": host, "web_port": port}
    settings = get_settings().model_copy(update={name: value for name, value in given.items() if value is not None})
    configure_logging(settings.log_level, settings.log_format)
    serve(settings, with_replica=with_replica, say=typer.echo)
