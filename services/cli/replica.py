"""`manage.py replica`: the program `python services/enhanced_scheduler.py` as a command."""


def replica() -> None:
    """Run one replica until SIGTERM or Ctrl-C, then drain it.

    Start as many as you like, on any machine. The settings are environment variables or lines of `.env`.

    Examples:

      manage.py replica

      INSTANCE_ID=web-1 METRICS_PORT=9109 manage.py replica
    """
    from services.enhanced_scheduler import run_enhanced_scheduler  # only this command loads the engine

    run_enhanced_scheduler()
