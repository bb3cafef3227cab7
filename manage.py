"""The command line. `python manage.py --help` lists the commands; each one has its own --help with examples.

A command's module is imported when the command is called. Help and tab completion therefore stay fast.
"""

import typer
from typer.completion import get_completion_inspect_parameters

from services.cli.lazy import Later, lazy
from services.cli.version import version_option
from services.wording.commands import as_called_here

WORKFLOWS = ("workflows",)  # an extra of the distribution
COMMANDS = (
    Later(
        "dev",
        "services.cli.dev:dev",
        "Start everything on this machine and show it at work; Ctrl-C drains the replicas and exits.",
        extras=("web",),
    ),
    Later("replica", "services.cli.replica:replica", "Run one replica until SIGTERM or Ctrl-C, then drain it."),
    Later(
        "worker",
        "services.cli.worker:worker",
        "Run a Celery worker, which takes executions of its queues; on SIGTERM it finishes what is running.",
        extras=("celery",),
    ),
    Later(
        "migrate",
        "run_migrations:main",
        "Upgrade the database to the newest schema. Safe to run at every start and from several processes at once.",
    ),
    Later("executions", "services.cli.executions:executions", "List executions, newest first."),
    Later("execution", "services.cli.executions:execution", "Show one execution with all its fields, or its log."),
    Later(
        "cancel",
        "services.cli.executions:cancel",
        "Cancel an execution: a waiting one at once, a running one by asking its replica to stop it.",
    ),
    Later(
        "retry",
        "services.cli.executions:retry",
        "Retry a failed execution: any replica may run the next attempt at its fire.",
    ),
    Later(
        "stats",
        "services.cli.executions:stats",
        "Count the executions of the last days, with their durations and lateness.",
    ),
    Later(
        "scan",
        "services.cli.scan:scan",
        "Scan a site for cookies now, and show the cookies and the changes since the previous scan.",
        extras=("scan",),
    ),
    Later(
        "sync",
        "services.cli.sync:sync",
        "Create, update and disable schedules to match the external API (API_URL).",
    ),
    Later(
        "businesses",
        "services.cli.pipeline_rows:businesses",
        "List businesses, newest first: places with their details.",
        extras=WORKFLOWS,
    ),
    Later(
        "domains",
        "services.cli.pipeline_rows:domains",
        "List domains, newest first; --queue-status is the status of their sitemap search.",
        extras=WORKFLOWS,
    ),
    Later(
        "sitemap-files",
        "services.cli.pipeline_rows:sitemap_files",
        "List sitemap files, newest first.",
        extras=WORKFLOWS,
    ),
    Later("pages", "services.cli.pipeline_rows:pages", "List pages of the sites, newest first.", extras=WORKFLOWS),
    Later(
        "queues",
        "services.cli.queues:queues",
        "List the queues of the workflows, in the order of the pipeline.",
        extras=WORKFLOWS,
    ),
    Later(
        "audit",
        "services.cli.audit:audit",
        "Recompute every due fire from the history of the schedules, and compare the fires with the executions.",
    ),
    Later(
        "cleanup",
        "services.cli.cleanup:cleanup",
        "Delete old history: finished executions, schedule changes and cookie scans.",
    ),
    Later("web", "services.cli.web:web", "Serve the HTTP API and the dashboard until Ctrl-C.", extras=("web",)),
    Later(
        "jobs",
        "services.cli.jobs:jobs",
        "List the job types, including your own (JOB_MODULES); with TYPE: every field of its job_config.",
    ),
    Later(
        "settings",
        "services.cli.settings_table:settings",
        "Show every setting with its effective value; secrets are masked.",
    ),
    Later(
        "doctor",
        "services.cli.doctor:doctor",
        "Check servers, versions, schema, clocks, replicas, schedules and settings, and say how to fix what is wrong.",
    ),
    Later(
        "verdicts",
        "services.cli.verdicts_table:verdicts",
        "Show every reason why a fire did not run: what it means and what to do.",
    ),
    Later(
        "completion",
        "services.cli.completion:completion",
        "Print the script for tab completion of `python manage.py …` in your shell.",
    ),
    Later("import", "services.cli.imports:app", "Schedules from other schedulers.", extras=("celery",)),
    Later("job", "services.cli.job_run:app", "Call the handlers of job types."),
    Later("schedule", "services.cli.schedules:app", "Create, change and inspect schedules."),
    Later(
        "limit",
        "services.cli.limits:app",
        "Limits across schedules: how many executions with the same key may run at once.",
    ),
    Later("rule", "services.cli.rules:app", "Notification rules: which events are sent to which channels."),
    Later("channel", "services.cli.channels:app", "Notification channels: webhooks, e-mail, chats and pagers."),
    Later("delivery", "services.cli.deliveries:app", "Deliveries of notifications: sent, waiting or failed."),
    Later("scans", "services.cli.scans:app", "List cookie scans, newest first; show or export one."),
    Later("scan-profile", "services.cli.scan_profiles:app", "Settings of cookie scans that several schedules share."),
    Later(
        "places",
        "services.cli.places:app",
        "List places, newest first; search the directory for more, or import them from a file.",
        extras=WORKFLOWS,
    ),
    Later(
        "queue",
        "services.cli.queues:app",
        "One queue: show, pause or resume it, requeue its failed rows.",
        extras=WORKFLOWS,
    ),
    Later("dead-letters", "services.cli.dead_letters:app", "Items whose last attempt failed.", extras=WORKFLOWS),
    Later("token", "services.cli.token:app", "Tokens of the HTTP API, with their roles."),
)

app = typer.Typer(
    cls=lazy(*COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # a local variable may hold a secret
    help="Enhanced Scheduler: periodic jobs from several replicas, each fire once.",
)
app.callback()(version_option)
get_completion_inspect_parameters()  # side effect: registers the shells' completion classes with Typer

if __name__ == "__main__":
    app(prog_name=as_called_here("manage.py"))
