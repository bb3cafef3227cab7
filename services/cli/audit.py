"""`manage.py audit`: is every due fire accounted for?"""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from config import get_settings
from database.connection import get_db_connection
from services.cli.durations import EXAMPLES, parse_duration
from services.cli.output import FAILED, AsJson, console, error_console, moment, print_json
from services.errors import InvalidInput, Problem
from services.insight.audit import AuditReport, Finding, Findings, audit_by
from services.schedule_repository import get_schedule_repository
from services.wording.counts import counted
from services.wording.short_ids import ID_PREFIX


def audit(
    since: Annotated[str, typer.Option(help=f"How far to look back: {EXAMPLES}.")] = "24h",
    as_json: AsJson = False,
) -> None:
    """Recompute every due fire from the history of the schedules, and compare the fires with the executions.

    Exit code 0 when every fire is accounted for. Otherwise 1, with the fires that are unexplained, unwatched (no
    replica has covered that time yet; the next one to start runs or records them), extra (no definition in force
    had this fire), recorded as missed and run, duplicated or unfinished.

    Examples:

      manage.py audit

      manage.py audit --since 7d --json
    """
    report = _run(parse_duration(since))
    if as_json:
        print_json({"clean": report.is_clean, **asdict(report)})
    else:
        _print(report)
    if not report.is_clean:
        raise typer.Exit(FAILED)


def _run(length: timedelta) -> AuditReport:
    settings = get_settings()
    if length > timedelta(days=settings.history_retention_days):
        kept = f"history is kept for {settings.history_retention_days} days (HISTORY_RETENTION_DAYS)"
        raise InvalidInput(Problem("since", f"{kept}: older fires cannot be audited"))
    columns = (TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task("", total=get_schedule_repository().count_schedules())
        since = datetime.now(UTC) - length
        return audit_by(settings, get_db_connection(), since, on_progress=lambda done: bar.update(task, completed=done))


def _print(report: AuditReport) -> None:
    out = console()
    out.print(f"{counted(report.schedules, 'schedule')}, {moment(report.since)} to {moment(report.until)}")
    sign = "=" if report.expected == report.accounted else "≠"
    out.print(f"expected {report.expected} {sign} accounted {report.accounted}", style="bold")
    out.print(f"duplicates {report.duplicates}")
    _print_findings("unexplained", report.unexplained)
    _print_findings("unwatched", report.unwatched)
    if report.unwatched:
        out.print(f"  {_way_out(report)}")
    _print_findings("extra", report.extra)
    _print_findings("recorded as missed and run", report.contradicted)
    _print_findings("unfinished", report.unfinished)
    out.print(f"on the edge {report.on_the_edge} (too recent or too close to a change to be judged)")
    out.print(f"in progress {report.in_progress}")
    verdict, style = ("all accounted for", "green") if report.is_clean else ("NOT all accounted for", "red bold")
    out.print(verdict, style=style)


def _print_findings(kind: str, findings: Findings) -> None:
    console().print(f"{kind} {findings.count}")
    for finding in findings:
        console().print(f"  {_line(finding)}", style="red")
    if findings.count > len(findings.first):
        console().print(f"  … and {findings.count - len(findings.first)} more")


def _way_out(report: AuditReport) -> str:
    if (watched := report.watched_by_all) is None:
        return "no replica has used this database yet: start one; it runs or records the missing fires"
    return (
        f"replicas have accounted for {moment(watched[0])} to {moment(watched[1])}; "
        "the next one to start runs or records later fires; earlier ones stay unaccounted"
    )


def _line(finding: Finding) -> str:
    status = f"   {finding.status}" if finding.status else ""
    return f"{moment(finding.scheduled_for)}   {str(finding.schedule_id)[:ID_PREFIX]}   {finding.schedule}{status}"
