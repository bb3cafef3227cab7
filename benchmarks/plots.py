"""Plots for the README, drawn from benchmarks/results/latest.json alone."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

from benchmarks import sheet
from benchmarks.sheet import Sheet

OURS_COLOUR, OTHERS_COLOUR, FLOOR_COLOUR = "#2563eb", "#9ca3af", "#16a34a"
PALETTE = ["#dc2626", "#f59e0b", "#7c3aed", "#db2777", "#78716c"]

matplotlib.use("Agg")


def draw(directory: Path) -> None:
    found = sheet.read(directory)
    for name, draw_one in DRAWN.items():
        if name in found:
            figure = draw_one(found[name])
            figure.savefig(directory / f"{name}.png", dpi=110, metadata={"Software": None})
            pyplot.close(figure)


def _burst(found: Sheet) -> Any:
    """Seconds until the last of N fires started, by design; both axes logarithmic: the times span four decades."""
    figure, axes = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    axes.set_prop_cycle(color=PALETTE)
    counts = [int(count) for count in found.facts]
    times = {
        design: [found.facts[str(count)][design]["last_start_seconds"] for count in counts]
        for design in next(iter(found.facts.values()))
    }
    for design, seconds in sorted(times.items(), key=lambda item: -item[1][-1]):  # the legend as the lines end
        label = f"{seconds[-1]:.1f} s  {design}"
        axes.plot(counts, seconds, marker="o", label=label, color=_colour(design), linewidth=2)
    axes.set(xscale="log", yscale="log", xlabel="schedules due at one instant", ylabel="seconds until the last start")
    axes.set_title("Burst: three replicas on one machine, full history")
    return _finish(figure, axes)


def _steady(found: Sheet) -> Any:
    figure, axes = pyplot.subplots(figsize=(8, 3), layout="constrained")
    names = list(found.facts)[::-1]
    values = [found.facts[name]["p99_seconds"] * 1000 for name in names]
    bars = axes.barh(names, values, color=[_colour(name) or OTHERS_COLOUR for name in names])
    labels = [f"{value:,.0f} ms, {_exactness(found.facts[name])}" for value, name in zip(values, names, strict=True)]
    axes.bar_label(bars, labels, padding=4)
    axes.set(xscale="log", xlabel="lateness, 99th percentile, ms", xlim=(10, max(values) * 3000))
    axes.set_title("200 fires a second, three replicas")
    return _finish(figure, axes, legend=False)


def _exactness(facts: dict[str, Any]) -> str:
    lost, twice = facts["planned"] - facts["run"], facts["run_twice"]
    said = [f"{lost:,} not run"] * (lost > 0) + [f"{twice:,} run twice"] * (twice > 0)
    return ", ".join(said) or "each once"


def _load(found: Sheet) -> Any:
    counts = [int(count) for count in found.facts if count.isdigit()]
    figure, (time_axes, memory_axes) = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axes, key, label in (
        (time_axes, "loaded_seconds", "seconds until loaded"),
        (memory_axes, "memory_mb", "memory of the replica, MB"),
    ):
        values = [found.facts[str(count)][key] for count in counts]
        axes.plot(counts, values, marker="o", color=OURS_COLOUR, linewidth=2)
        axes.set(xscale="log", xlabel="schedules", ylabel=label, ylim=(0, max(values) * 1.15))
        axes.annotate(
            f"{values[-1]:.0f}", (counts[-1], values[-1]), xytext=(-4, 6), textcoords="offset points", ha="right"
        )
        _finish(figure, axes, legend=False)
    return figure


def _replicas(found: Sheet) -> Any:
    """Cost of a fire by the number of replicas; both axes logarithmic, so that a power law is a straight line."""
    counts = [int(count) for count in found.facts if count.isdigit()]
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for part, name, colour in (
        ("replicas", "all replicas together", OURS_COLOUR),
        ("postgres", "Postgres", FLOOR_COLOUR),
        ("redis", "Redis", PALETTE[0]),
    ):
        values = [found.facts[str(count)][f"{part}_cpu_seconds_per_fire"] * 1000 for count in counts]
        label = f"{name}: to the power of {found.facts['exponents'][part]:.2f}"
        axes.plot(counts, values, marker="o", label=label, color=colour, linewidth=2)
    axes.set(xscale="log", yscale="log", xlabel="replicas", ylabel="CPU per fire, ms")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_yticks(ticks := [0.01, 0.03, 0.1, 0.3, 1], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title("200 fires a second, idle cost subtracted")
    return _finish(figure, axes)


def _finish(figure: Any, axes: Any, *, legend: bool = True) -> Any:
    axes.grid(visible=True, which="major", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False, fontsize=8)
    return figure


def _colour(design: str) -> str | None:
    if design == "Enhanced Scheduler":
        return OURS_COLOUR
    return FLOOR_COLOUR if design.startswith("floor") else None


DRAWN = {"burst": _burst, "steady": _steady, "load": _load, "replicas": _replicas}
