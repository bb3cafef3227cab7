"""The command line. `python manage.py --help` lists the commands; each one has its own --help with examples.

A command is imported when it is called: help and the Tab key stay quick, and nobody loads what others need.
"""

import typer
from typer.completion import get_completion_inspect_parameters

from services.cli.lazy import Later, lazy
from services.cli.version import version_option

COMMANDS = (
    Later(
        "dev",
        "services.cli.dev:dev",
        "Start everything on this machine and watch it work; Ctrl-C drains the replicas and ends.",
    ),
    Later("executions", "services.cli.executions:executions", "List executions, newest first, page by page."),
    Later("execution", "services.cli.executions:execution", "Show everything that is known about one execution."),
    Later(
        "cancel",
        "services.cli.executions:cancel",
        "Cancel an execution: at once while it waits, otherwise its replica is asked to stop it.",
    ),
    Later(
        "retry",
        "services.cli.executions:retry",
        "Try the fire of a failed execution once more; any replica may take it.",
    ),
    Later(
        "stats",
        "services.cli.executions:stats",
        "Count executions of the last days, with their durations and how late they started.",
    ),
    Later(
        "scan",
        "services.cli.scan:scan",
        "Scan a site for cookies now, and show what was found and what changed since the scan before.",
    ),
    Later(
        "sync",
        "services.cli.sync:sync",
        "Create, update and switch off schedules as the external API (API_URL) says.",
    ),
    Later(
        "businesses",
        "services.cli.pipeline_rows:businesses",
        "List businesses, newest first: places with their details.",
    ),
    Later(
        "domains",
        "services.cli.pipeline_rows:domains",
        "List domains, newest first; --queue-status is that of the search for their sitemaps.",
    ),
    Later("sitemap-files", "services.cli.pipeline_rows:sitemap_files", "List sitemap files, newest first."),
    Later("pages", "services.cli.pipeline_rows:pages", "List pages of the sites, newest first."),
    Later("queues", "services.cli.queues:queues", "List the queues of the workflows, in the order of the pipeline."),
    Later(
        "audit",
        "services.cli.audit:audit",
        "Recompute every fire that was due from the schedules' own history, and compare it with the executions.",
    ),
    Later(
        "cleanup",
        "services.cli.cleanup:cleanup",
        "Delete executions that ended, schedule changes and cookie scans older than some days.",
    ),
    Later("web", "services.cli.web:web", "Serve the HTTP API until Ctrl-C."),
    Later(
        "jobs",
        "services.cli.jobs:jobs",
        "List the job types, your own (JOB_MODULES) included; with TYPE: every field that its job_config may have.",
    ),
    Later(
        "settings",
        "services.cli.settings_table:settings",
        "Show every setting with its effective value; secrets are masked.",
    ),
    Later(
        "doctor",
        "services.cli.doctor:doctor",
        "Check servers, versions, schema, clocks, replicas, schedules and settings, and say how to mend what is wrong.",
    ),
    Later(
        "verdicts",
        "services.cli.verdicts_table:verdicts",
        "Show every reason why a fire was not run: what it means and what to do.",
    ),
    Later(
        "completion",
        "services.cli.completion:completion",
        "Print what makes the Tab key complete `python manage.py …` in your shell.",
    ),
    Later("schedule", "services.cli.schedules:app", "Create, change and look at schedules."),
    Later("scans", "services.cli.scans:app", "List cookie scans, newest first, page by page; or show or export one."),
    Later("scan-profile", "services.cli.scan_profiles:app", "Settings of cookie scans that several schedules share."),
    Later(
        "places",
        "services.cli.places:app",
        "List places, newest first, page by page; search the directory for more, or import a file.",
    ),
    Later("queue", "services.cli.queues:app", "One queue: look at it, pause it, requeue what failed."),
    Later("dead-letters", "services.cli.dead_letters:app", "Items whose last attempt failed."),
    Later("token", "services.cli.token:app", "Who may use the HTTP API, and how far."),
)

app = typer.Typer(
    cls=lazy(*COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # a local variable may hold a secret
    help="Enhanced Scheduler: periodic jobs from several replicas, each fire exactly once.",
)
app.callback()(version_option)
get_completion_inspect_parameters()  # as a side effect, Typer knows the shells that ask it for candidates

if __name__ == "__main__":
    app()
