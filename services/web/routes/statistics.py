"""/api/v3/statistics and /api/v3/replicas: counts, what needs attention, the forecast, and the replicas."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query

from services.insight.failures import Failures, group_errors
from services.insight.forecast import forecast
from services.insight.overview import Overview
from services.insight.replicas import list_replicas
from services.web.auth.guard import Viewer
from services.web.routing import API, PartsOf, router
from services.web.schemas.executions import (
    AttentionOut,
    ErrorGroupList,
    ErrorGroupOut,
    FireCountsOut,
    ForecastOut,
    LoadOut,
    MinuteOut,
    OverviewOut,
    StatisticsOut,
)
from services.web.schemas.system import ReplicaList

statistics = router(f"{API}/statistics", "statistics")
replicas = router(f"{API}/replicas", "replicas")

Minutes = Annotated[int, Query(ge=1, le=24 * 60)]


@statistics.get("")
def read_statistics(parts: PartsOf, who: Viewer, days: Annotated[int, Query(ge=1, le=36_500)] = 7) -> StatisticsOut:
    """Counts, durations and lateness over the last days."""
    counts = FireCountsOut.model_validate(Failures(parts.db).counts(24 * days))
    return StatisticsOut.model_validate({**parts.history.get_execution_statistics(days), "fires": counts})


@statistics.get("/errors")
def read_errors(
    parts: PartsOf,
    who: Viewer,
    hours: Annotated[int, Query(ge=1, le=24 * 366)] = 24,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of groups.")] = 50,
) -> ErrorGroupList:
    """The errors of the last hours, equal ones together, from at most the newest 5,000 failed attempts."""
    groups = group_errors(Failures(parts.db).lately(hours))
    return ErrorGroupList(items=[ErrorGroupOut.model_validate(group) for group in groups[:limit]])


@statistics.get("/overview")
def read_overview(parts: PartsOf, who: Viewer, minutes: Minutes = 60) -> OverviewOut:
    """Outcomes per minute, and what needs attention."""
    overview = Overview(parts.db)
    return OverviewOut(
        minutes=[MinuteOut.model_validate(minute) for minute in overview.minutes(minutes)],
        attention=[AttentionOut(**asdict(item)) for item in overview.attention()],
    )


@statistics.get("/forecast")
def read_forecast(parts: PartsOf, who: Viewer, minutes: Minutes = 60) -> ForecastOut:
    """Expected load of the coming minutes."""
    return ForecastOut(minutes=[LoadOut.model_validate(load) for load in forecast(parts.db, minutes)])


@replicas.get("")
def read_replicas(parts: PartsOf, who: Viewer) -> ReplicaList:
    """All replicas with their health and the newest change that each has applied."""
    return ReplicaList.model_validate(list_replicas(parts.db, parts.settings.heartbeat_timeout_seconds))
