"""`manage.py worker`: a Celery worker of the fleet. In an installation, `services.fleet.app` has no name outside."""

from typing import Annotated

import typer


def worker(
    queues: Annotated[
        str | None, typer.Option("--queues", "-Q", help="Queues to serve, comma-separated; default: CELERY_QUEUES.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, help="Concurrent executions; default: one per processor."),
    ] = None,
    pool: Annotated[str, typer.Option("--pool", "-P", help="prefork, threads or solo.")] = "prefork",
    hostname: Annotated[str | None, typer.Option(help="Its name in Celery, such as worker-1@%h.")] = None,
) -> None:
    """Run a Celery worker, which takes executions of its queues; on SIGTERM it finishes what is running.

    `celery --app services.fleet.app worker` in a checkout, where it has more options.

    Examples:

      manage.py worker --queues browser --concurrency 4
    """
    from services.fleet.app import app  # only this command loads Celery

    given = {"--queues": queues, "--concurrency": concurrency, "--pool": pool, "--hostname": hostname}
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    app.worker_main(["worker", *words])
