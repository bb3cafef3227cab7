"""The services that handlers and dashboard use, built once per app and stored in `app.state.parts`."""

from dataclasses import dataclass

from fastapi import Request

from config import Settings
from database.connection import DatabaseConnection
from services.enhanced_scheduler import EnhancedScheduler
from services.insight.explain.explainer import Explainer
from services.job_history import JobHistory
from services.jobs.users import load_users_jobs
from services.ledger.backfill import Backfills
from services.ledger.fires import Policy
from services.notifications.channel_rows import Channels
from services.notifications.deliveries import Deliveries
from services.notifications.rules import Rules
from services.scanning.store import ScanStore
from services.schedule_repository import ScheduleRepository
from services.schedules.limits import Limits
from services.web.auth.authenticator import Authenticator, OneTimeToken
from services.web.auth.jwts import JwtVerifier
from services.web.auth.sessions import Sessions
from services.web.auth.tokens import ApiTokens
from services.web.event_streams import EventStreams
from services.web.idempotency import IdempotencyKeys
from services.web.rate_limits import RateLimits


@dataclass(frozen=True, slots=True)
class Parts:
    settings: Settings
    db: DatabaseConnection
    repository: ScheduleRepository
    schedule_limits: Limits
    channels: Channels
    rules: Rules
    deliveries: Deliveries
    history: JobHistory
    backfills: Backfills
    explainer: Explainer
    scans: ScanStore
    authenticator: Authenticator
    idempotency: IdempotencyKeys
    limits: RateLimits
    streams: EventStreams
    scheduler: EnhancedScheduler | None  # the replica in this process, if any


def build_parts(settings: Settings, one_time: OneTimeToken | None, scheduler: EnhancedScheduler | None) -> Parts:
    load_users_jobs(settings)
    db = DatabaseConnection.from_settings(settings)
    tokens = ApiTokens(db)
    return Parts(
        settings=settings,
        db=db,
        repository=ScheduleRepository(db),
        schedule_limits=Limits(db),
        channels=Channels(db),
        rules=Rules(db),
        deliveries=Deliveries(db),
        history=JobHistory(db, fence_horizon_seconds=settings.fence_horizon_seconds),
        backfills=Backfills.from_settings(db, settings),
        explainer=Explainer.from_settings(db, Policy.from_settings(settings), settings),
        scans=ScanStore(db),
        authenticator=Authenticator(
            tokens, JwtVerifier.from_settings(settings), Sessions.from_settings(settings), one_time
        ),
        idempotency=IdempotencyKeys(db),
        limits=RateLimits(settings.web_rate_limit_per_minute),
        streams=EventStreams(settings.web_max_event_streams),
        scheduler=scheduler,
    )


def parts_of(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts
