"""The command line. `python manage.py --help` lists the commands; each one has its own --help with examples."""

import typer

from services.cli import (
    audit,
    cleanup,
    completion,
    dead_letters,
    dev,
    doctor,
    executions,
    jobs,
    pipeline_rows,
    places,
    queues,
    scan,
    scan_profiles,
    scans,
    schedules,
    settings_table,
    sync,
    token,
    verdicts_table,
    web,
)
from services.cli.output import ClearErrors
from services.cli.version import version_option

app = typer.Typer(
    cls=ClearErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # a local variable may hold a secret
    help="Enhanced Scheduler: periodic jobs from several replicas, each fire exactly once.",
)
app.callback()(version_option)
app.command("dev")(dev.dev)
app.add_typer(schedules.app, name="schedule")
app.command("executions")(executions.executions)
app.command("execution")(executions.execution)
app.command("cancel")(executions.cancel)
app.command("retry")(executions.retry)
app.command("stats")(executions.stats)
app.command("scan")(scan.scan)
app.add_typer(scans.app, name="scans")
app.add_typer(scan_profiles.app, name="scan-profile")
app.command("sync")(sync.sync)
app.add_typer(places.app, name="places")
app.command("businesses")(pipeline_rows.businesses)
app.command("domains")(pipeline_rows.domains)
app.command("sitemap-files")(pipeline_rows.sitemap_files)
app.command("pages")(pipeline_rows.pages)
app.command("queues")(queues.queues)
app.add_typer(queues.app, name="queue")
app.add_typer(dead_letters.app, name="dead-letters")
app.command("audit")(audit.audit)
app.command("cleanup")(cleanup.cleanup)
app.command("web")(web.web)
app.add_typer(token.app, name="token")
app.command("jobs")(jobs.jobs)
app.command("verdicts")(verdicts_table.verdicts)
app.command("settings")(settings_table.settings)
app.command("doctor")(doctor.doctor)
app.command("completion")(completion.completion)

if __name__ == "__main__":
    app()
