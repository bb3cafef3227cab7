"""Liveness, readiness and metrics of this process; they contain no secrets and need no token."""

from typing import Any

from fastapi import Request, Response
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel

from services.telemetry.metrics import WithoutReplica
from services.web.auth.guard import Probe
from services.web.routing import PartsOf, router
from services.web.schemas.system import Alive, Ready

probes = router("", "probes")

METRICS = """# HELP scheduler_http_requests_total Requests to the HTTP API
# TYPE scheduler_http_requests_total counter
scheduler_http_requests_total{method="GET",route="/api/v3/schedules",status="200"} 42.0
"""


def _not_now(model: type[BaseModel], example: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    described = {"description": "The same body, with the reasons", "model": model}
    return {503: {**described, "content": {"application/json": {"example": example}}}}


STALLED = _not_now(Alive, {"status": "stalled", "stalled_seconds": {"recovery": 312.4}})
NOT_READY = _not_now(Ready, {"status": "not ready", "reasons": ["Postgres does not answer"]})


@probes.get("/healthz", summary="Liveness", responses=STALLED)
def check_liveness(response: Response, parts: PartsOf, everybody: Probe) -> Alive:
    """Liveness: 503 means that this process must be restarted, and names the stalled loops of its replica."""
    stalled = {} if parts.scheduler is None else parts.scheduler.liveness()
    response.status_code = 503 if stalled else 200
    return Alive(status="stalled" if stalled else "alive", stalled_seconds=stalled)


@probes.get("/readyz", summary="Readiness", responses=NOT_READY)
def check_readiness(response: Response, parts: PartsOf, everybody: Probe) -> Ready:
    """Readiness: 503 means that this process cannot do its work, and gives the reasons."""
    reasons = [] if parts.db.ping() else ["Postgres does not answer"]
    if parts.scheduler is not None:
        reasons += parts.scheduler.readiness()
    response.status_code = 503 if reasons else 200
    return Ready(status="not ready" if reasons else "ready", reasons=reasons)


@probes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": METRICS}}}},
)
def read_metrics(request: Request, parts: PartsOf, everybody: Probe) -> Response:
    """Metrics in the Prometheus text format."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    found = WithoutReplica() if parts.scheduler is None else REGISTRY
    return Response(encode(found), media_type=content_type)
