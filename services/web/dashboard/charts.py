"""ECharts options from plain values. Pure, so that charts can be tested without a browser."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from html import escape
from itertools import pairwise
from typing import Any

from services.insight.forecast import Load
from services.insight.overview import Bar, Minute
from services.queues.overview import Sample
from services.web.dashboard.look import COLOURS, colour

FAINT = "#8a94a6"  # of lines; the stylesheet colours the text for light and dark mode
TOOLTIP = {
    "textStyle": {"color": "var(--es-text)"},
    "extraCssText": "background: var(--es-card); border-color: var(--es-line); max-width: 80vw; white-space: normal;",
}
GRID = {"left": 44, "right": 16, "top": 30, "bottom": 24}
FAILURES = ("failed", "timed_out", "abandoned")


def _base(**options: Any) -> dict[str, Any]:
    """Animation would make live charts jump."""
    return {"animation": False, "grid": GRID, "tooltip": {"trigger": "axis", **TOOLTIP}, **options}


def _times(instants: Sequence[datetime], form: str = "%H:%M") -> dict[str, Any]:
    labels = [at.strftime(form) for at in instants]
    return {"type": "category", "data": labels, "axisTick": {"show": False}}


def _values(name: str = "", **more: Any) -> dict[str, Any]:
    lines = {"lineStyle": {"color": FAINT, "opacity": 0.2}}
    return {"type": "value", "name": name, "splitLine": lines, **more}


def outcomes(minutes: Sequence[Minute], form: str = "%H:%M") -> dict[str, Any]:
    """Fires by the status of their last attempt."""
    present = [status for status in COLOURS if any(status in minute.outcomes for minute in minutes)]
    return _base(
        legend={
            "type": "scroll",  # on a phone a second line would lie on the axis
            "top": 0,
            "itemWidth": 12,
            "itemHeight": 8,
            "pageIconColor": FAINT,
        },
        xAxis=_times([minute.at for minute in minutes], form),
        yAxis=_values(minInterval=1),
        series=[
            {
                "name": status.replace("_", " "),
                "type": "bar",
                "stack": "all",
                "barCategoryGap": "15%",
                "itemStyle": {"color": colour(status)},
                "data": [minute.outcomes.get(status, 0) for minute in minutes],
            }
            for status in present
        ],
    )


def lateness(minutes: Sequence[Minute], form: str = "%H:%M") -> dict[str, Any]:
    """Start lateness in milliseconds; a time without executions is a gap."""

    def line(name: str, values: list[float | None], tint: str) -> dict[str, Any]:
        data = [None if value is None else round(value * 1000, 1) for value in values]
        return {"name": name, "type": "line", "showSymbol": False, "data": data, "itemStyle": {"color": tint}}

    return _base(
        legend={"top": 0},
        xAxis=_times([minute.at for minute in minutes], form),
        yAxis=_values("ms"),
        series=[
            line("p50", [minute.p50_seconds for minute in minutes], colour("success")),
            line("p99", [minute.p99_seconds for minute in minutes], colour("missed")),
        ],
    )


def forecast(loads: Sequence[Load], local: Any) -> dict[str, Any]:
    """Forecast per minute: fires as bars, seconds of work as a line."""
    return _base(
        legend={"top": 0},
        xAxis=_times([local(load.at) for load in loads]),
        yAxis=[_values("fires", minInterval=1), _values("work (s)", splitLine={"show": False})],
        grid={**GRID, "right": 48},
        series=[
            {
                "name": "fires",
                "type": "bar",
                "data": [round(load.fires, 1) for load in loads],
                "itemStyle": {"color": colour("claimed")},
            },
            {
                "name": "work (s)",
                "type": "line",
                "yAxisIndex": 1,
                "showSymbol": False,
                "data": [round(load.seconds, 1) for load in loads],
                "itemStyle": {"color": colour("missed")},
            },
        ],
    )


def calendar(days: dict[date, dict[str, int]], today: date, weeks: int = 26) -> dict[str, Any]:
    """A square per day, from green (no failures) to red (all failed)."""
    first = today - timedelta(weeks=weeks)
    data = [[day.isoformat(), _badness(counts), _in_words(counts)] for day, counts in sorted(days.items())]
    return {
        "animation": False,
        "tooltip": {":formatter": "p => p.value[0] + '<br>' + p.value[2]", **TOOLTIP},
        "visualMap": {
            "show": False,
            "min": 0,
            "max": 100,
            "dimension": 1,
            "inRange": {"color": [colour("success"), colour("missed"), colour("failed")]},
        },
        "calendar": {
            "range": [first.isoformat(), today.isoformat()],
            "cellSize": ["auto", 15],
            "top": 24,
            "left": 36,
            "right": 8,
            "itemStyle": {"color": "transparent", "borderColor": FAINT, "borderWidth": 0.3},
            "splitLine": {"show": False},
            "dayLabel": {"firstDay": 1},
            "yearLabel": {"show": False},
        },
        "series": [{"type": "heatmap", "coordinateSystem": "calendar", "data": data}],
    }


def queue(samples: Sequence[Sample], local: Any, form: str = "%H:%M") -> dict[str, Any]:
    """Depth and throughput of a queue."""
    done = [max(0, after.succeeded - before.succeeded) for before, after in pairwise(samples)]
    return _base(
        legend={"top": 0},
        xAxis=_times([local(sample.sampled_at) for sample in samples], form),
        yAxis=[_values("waiting", minInterval=1), _values("succeeded", minInterval=1, splitLine={"show": False})],
        series=[
            {
                "name": "waiting",
                "type": "line",
                "showSymbol": False,
                "areaStyle": {"opacity": 0.2},
                "data": [sample.depth for sample in samples],
                "itemStyle": {"color": colour("missed")},
            },
            {
                "name": "succeeded",
                "type": "bar",
                "yAxisIndex": 1,
                "data": [0, *done],
                "itemStyle": {"color": colour("success")},
            },
        ],
    )


def _badness(counts: dict[str, int]) -> int:
    """0: all succeeded, 100: all failed; skipped and missed count half."""
    total = sum(counts.values())
    failed = sum(counts.get(status, 0) for status in FAILURES)
    passed_over = counts.get("skipped", 0) + counts.get("missed", 0)
    return round(100 * (failed + passed_over / 2) / total) if total else 0


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in sorted(counts.items()))


def durations(instants: Sequence[datetime], seconds: Sequence[float], statuses: Sequence[str]) -> dict[str, Any]:
    """Durations of the last executions, coloured by status."""
    unit, factor = ("s", 1) if max(seconds, default=0) >= 1 else ("ms", 1000)
    points = [
        {"value": [at.isoformat(), round(value * factor, 2)], "itemStyle": {"color": colour(status)}}
        for at, value, status in zip(instants, seconds, statuses, strict=True)
    ]
    return _base(
        tooltip={"trigger": "item", **TOOLTIP},
        xAxis={"type": "time", "splitLine": {"show": False}, "axisLabel": {"hideOverlap": True}},
        yAxis=_values(unit),
        series=[{"type": "scatter", "symbolSize": 7, "data": points}],
    )


def timeline(bars: Sequence[Bar], local: Any, now: datetime, minutes: int) -> dict[str, Any]:
    """A row per replica, a bar per execution; running executions extend to now."""
    replicas = sorted({bar.instance_id for bar in bars})
    rows = [
        {
            "name": escape(bar.label),  # the tooltip is HTML, and the name comes from users
            "value": [
                replicas.index(bar.instance_id),
                local(bar.started_at).isoformat(),
                local(bar.completed_at or now).isoformat(),
                bar.status.replace("_", " "),
                str(bar.execution_id),
            ],
            "itemStyle": {"color": colour(bar.status)},
        }
        for bar in bars
    ]
    return _base(
        grid={**GRID, "left": 110, "top": 8},
        tooltip={":formatter": "p => p.name + '<br>' + p.value[3]", **TOOLTIP},
        xAxis={
            "type": "time",
            "min": local(now - timedelta(minutes=minutes)).isoformat(),
            "max": local(now).isoformat(),
            "axisLabel": {"hideOverlap": True},
        },
        yAxis={
            "type": "category",
            "data": replicas,
            "axisLabel": {"width": 100, "overflow": "truncate"},
        },
        dataZoom=[{"type": "inside", "filterMode": "weakFilter"}],
        series=[
            {
                "type": "custom",
                ":renderItem": RENDER_BAR,
                "encode": {"x": [1, 2], "y": 0},
                "data": rows,
            }
        ],
    )


# At least two pixels wide: most executions are shorter than a pixel of an hour.
RENDER_BAR = """(params, api) => {
  const area = params.coordSys, height = Math.min(28, api.size([0, 1])[1] * 0.6);
  const begin = api.coord([api.value(1), api.value(0)]), end = api.coord([api.value(2), api.value(0)]);
  const left = Math.max(begin[0], area.x), right = Math.min(Math.max(end[0], begin[0] + 2), area.x + area.width);
  if (right <= left) return;
  return {type: 'rect', shape: {x: left, y: begin[1] - height / 2, width: right - left, height}, style: api.style()};
}"""
