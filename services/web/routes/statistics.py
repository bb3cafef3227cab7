"""/api/v3/statistics and /api/v3/replicas: counts, what needs attention, the forecast, and the replicas."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query

from services.insight.forecast import forecast
from services.insight.overview import Overview
from services.insight.replicas import list_replicas
from services.web.auth.guard import Viewer
from services.web.routing import API, PartsOf, router
from services.web.schemas.executions import (
    AttentionOut,
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
    return StatisticsOut.model_validate(parts.history.get_execution_statistics(days))


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
