"""A user's Celery app with a beat schedule: what can be carried over, and what cannot."""

from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from celery.schedules import crontab, schedule, solar
from kombu import Queue

app = Celery("shop")
app.conf.timezone = "Europe/Berlin"
app.conf.task_routes = {
    "shop.mail.*": {"queue": "mail"},
    "shop.report": {"queue": "reports"},
    "shop.routed": {"exchange": "x", "routing_key": "y"},
}


class Sunset(solar):  # type: ignore[misc]
    """`solar` itself needs another package."""

    def __init__(self) -> None:
        self.event, self.nowfun = "sunset", None


class Fortnightly(schedule):  # type: ignore[misc]
    pass


@app.task(name="shop.report", expires=90)  # type: ignore[untyped-decorator]
def report(*args: Any, **kwargs: Any) -> None: ...


PORTABLE: dict[str, dict[str, Any]] = {
    "morning": {"task": "shop.report", "schedule": crontab(minute=30, hour=7), "args": (1, ("a",))},
    "mail": {"task": "shop.mail.send", "schedule": 30.0, "kwargs": {"full": True}, "options": {"priority": 2}},
    "poll": {"task": "shop.poll", "schedule": timedelta(minutes=2), "options": {"expires": 60, "queue": Queue("io")}},
    "close": {"task": "shop.close", "schedule": crontab(0, 6, day_of_month="1-7", day_of_week="mon")},
    "beat": {"task": "shop.poll", "schedule": schedule(run_every=10), "options": {"retry": False}},
}
NOT_PORTABLE: dict[str, dict[str, Any]] = {
    "sunset": {"task": "shop.poll", "schedule": Sunset()},
    "own class": {"task": "shop.poll", "schedule": Fortnightly(run_every=10)},
    "own clock": {"task": "shop.poll", "schedule": crontab(nowfun=lambda: datetime.now(UTC))},
    "both days": {"task": "shop.poll", "schedule": crontab(0, 6, day_of_month="1,15", day_of_week="mon")},
    "too fast": {"task": "shop.poll", "schedule": 0.5},
    "no JSON": {
        "task": "shop.poll",
        "schedule": 60.0,
        "args": (datetime(2026, 1, 1, tzinfo=UTC),),
        "kwargs": {"a": {1: 2}},
    },
    "later": {"task": "shop.poll", "schedule": 60.0, "options": {"countdown": 5, "link": "shop.done"}},
    "routed": {"task": "shop.routed", "schedule": 60.0},
    "until": {"task": "shop.poll", "schedule": 60.0, "options": {"expires": datetime(2030, 1, 1, tzinfo=UTC)}},
}
app.conf.beat_schedule = PORTABLE
