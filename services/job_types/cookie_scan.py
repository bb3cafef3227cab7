"""The job type `cookie_scan`: scan the schedule's domain, store the findings, report the changes.

Load, work, save: no connection is held during the scan. The scan is stored only if the execution still holds its claim
when the scan ends.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from sqlalchemy import select

from config import get_settings
from database.connection import get_db_connection
from database.models import Schedule
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.results import JobFailed, PermanentFailure
from services.errors import ConfigurationError
from services.jobs.registry import job
from services.scanning.config import CookieScanConfig, config_problems, one_spelling
from services.scanning.engines.browser_engine import has_browser
from services.scanning.failures import ScanFailed, ScanRefused
from services.scanning.findings import EngineName, Scan
from services.scanning.profiles import ProfileRecord, ScanProfiles
from services.scanning.scan import scan_domain
from services.scanning.store import Execution, ScanStore
from services.scanning.watch import Watch

SAVE_SECONDS, SAVE_SHARE = 15.0, 0.1  # share of the execution's time that is reserved for saving
BROWSER, ENGINE_FIELDS = "browser", ("engine", "allow_deep_scan")
SHOWN_CHANGES, SHOWN_CHARACTERS = 20, 100


def _labels(job_config: Mapping[str, Any], profile: Mapping[str, Any] | None) -> tuple[str, ...]:
    given = {**one_spelling(profile or {}), **one_spelling(job_config)}
    wanted = CookieScanConfig.model_validate({name: given[name] for name in ENGINE_FIELDS if name in given})
    return (BROWSER,) if wanted.engine_name is EngineName.BROWSER else ()


def _offers() -> tuple[str, ...]:
    return (BROWSER,) if has_browser(get_settings()) else ()


@job(
    "cookie_scan",
    config_model=CookieScanConfig,
    one_spelling=one_spelling,
    domain_is_host=True,
    labels=_labels,
    offers=_offers,
)
def cookie_scan(context: ExecutionContext, config: CookieScanConfig) -> Mapping[str, Any]:
    """Visit the schedule's domain, record every cookie and its attributes, and report changes since the last scan."""
    context.check()
    wanted = _over_profile(config, _profile_of(context.schedule_id))
    context.log(f"scanning {context.domain} with the {wanted.engine_name} engine")
    try:
        outcome = scan_domain(context.domain, wanted, get_settings(), _watch(context))
    except ScanFailed as error:
        raise JobFailed(str(error), retryable=error.retryable, retry_after_seconds=error.retry_after_seconds) from None
    except ConfigurationError as error:  # no browser, or an invalid table of rules
        raise PermanentFailure(str(error)) from None
    execution = Execution(context.execution_id, context.schedule_id, context.fencing_token)
    try:
        return _result(ScanStore(get_db_connection()).save(outcome, execution))
    except ScanRefused as error:
        raise PermanentFailure(str(error)) from None


def _profile_of(schedule_id: UUID | None) -> ProfileRecord | None:
    db = get_db_connection()
    with db.transaction() as connection:
        profile_id = connection.scalar(select(Schedule.profile_id).where(Schedule.schedule_id == schedule_id))
    return None if profile_id is None else ScanProfiles(db).get(profile_id)


def _over_profile(config: CookieScanConfig, profile: ProfileRecord | None) -> CookieScanConfig:
    """The schedule's own settings override those of its profile."""
    if profile is None:
        return config
    problems = profile.problems or config_problems({**one_spelling(profile.config), **config.given()})
    if problems:
        raise PermanentFailure(f"scan profile {profile.label}: {'; '.join(map(str, problems))}")
    return CookieScanConfig.model_validate({**one_spelling(profile.config), **config.given()})


def _watch(context: ExecutionContext) -> Watch:
    kept_back = min(SAVE_SECONDS, SAVE_SHARE * context.timeout_seconds)

    def remaining_seconds() -> float:
        context.check()
        return max(0.0, context.remaining_seconds - kept_back)

    return Watch(remaining_seconds=remaining_seconds, progress=context.progress, log=context.log)


def _result(scan: Scan) -> dict[str, Any]:
    """Small: the whole scan is stored in its own tables."""
    return {
        "scan_id": str(scan.scan_id),
        "engine": scan.engine.value,
        "previous_scan_id": scan.previous_scan_id and str(scan.previous_scan_id),
        "summary": scan.summary,
        "changes": [
            {name: _short(value) for name, value in asdict(change).items()} for change in scan.changes[:SHOWN_CHANGES]
        ],
    }


def _short(value: Any) -> Any:
    return value[:SHOWN_CHARACTERS] if isinstance(value, str) else value
