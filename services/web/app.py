"""The FastAPI app: parts, routes, middleware and lifespan. Start reading at `create_app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from config import VERSION, Settings
from services.enhanced_scheduler import EnhancedScheduler
from services.errors import SchedulerError
from services.web import openapi, problems
from services.web.auth.authenticator import OneTimeToken
from services.web.middleware import HeadAsGet, LimitedBody, RequestContext
from services.web.parts import build_parts
from services.web.routes.channels import channels
from services.web.routes.contacts import contacts
from services.web.routes.dead_letters import dead_letters
from services.web.routes.deliveries import deliveries
from services.web.routes.dev_tools import dev_tools
from services.web.routes.docs import docs
from services.web.routes.executions import executions
from services.web.routes.limits import limits
from services.web.routes.pipeline_lists import pipeline_lists
from services.web.routes.places import places
from services.web.routes.probes import probes
from services.web.routes.queues import queues
from services.web.routes.rules import rules
from services.web.routes.scans import scans
from services.web.routes.schedule_actions import schedule_actions
from services.web.routes.schedules import schedules
from services.web.routes.sessions import sessions
from services.web.routes.statistics import replicas, statistics
from services.web.routes.sync import sync
from services.web.routes.tokens import tokens
from services.web.routes.workflow_tools import workflow_tools
from services.web.routes.workflows import workflows

ROUTERS: tuple[APIRouter, ...] = (
    schedule_actions,  # before `schedules`, so that /preview is not taken for the name of a schedule
    schedules,
    limits,
    channels,
    rules,
    deliveries,
    executions,
    statistics,
    replicas,
    scans,
    sync,
    workflows,
    places,
    pipeline_lists,
    contacts,
    queues,
    dead_letters,
    sessions,
    tokens,
    dev_tools,
    workflow_tools,
    probes,
    docs,
)
ALLOWED_HEADERS = ["Authorization", "Content-Type", "If-Match", "If-None-Match", "Idempotency-Key", "X-Request-Id"]
EXPOSED_HEADERS = ["ETag", "Location", "Retry-After", "Idempotency-Replayed", "X-Request-Id"]


def create_app(settings: Settings, *, with_replica: bool = False, one_time: OneTimeToken | None = None) -> FastAPI:
    """The API; the dashboard can be mounted on it. `with_replica` runs a replica in the same process."""
    scheduler = EnhancedScheduler(settings=settings) if with_replica else None
    app = FastAPI(
        title=openapi.TITLE,
        version=VERSION,
        lifespan=_lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's own pages load their scripts from another server
        redoc_url=None,
        generate_unique_id_function=openapi.operation_id,
    )
    app.state.parts, app.state.failure = build_parts(settings, one_time, scheduler), None
    problems.install(app)
    openapi.install(app)
    for each in ROUTERS:
        app.include_router(each)
    app.add_middleware(LimitedBody, max_bytes=settings.web_max_body_bytes)
    if origins := [origin.strip() for origin in settings.web_cors_origins.split(",") if origin.strip()]:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=ALLOWED_HEADERS,
            expose_headers=EXPOSED_HEADERS,
        )
    app.add_middleware(HeadAsGet)
    app.add_middleware(RequestContext)  # the last one added is the outermost
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The replica starts before the first request and drains after the last one."""
    parts = app.state.parts
    try:
        if parts.scheduler is not None:
            await run_in_threadpool(parts.scheduler.start)
    except SchedulerError as error:
        app.state.failure = error  # for `serve`, which reports it
        raise
    try:
        yield
    finally:
        if parts.scheduler is not None:
            await run_in_threadpool(parts.scheduler.stop)
        parts.db.close()
