"""200 fires a second for a minute: 200 schedules that fire each second."""

from collections.abc import Iterator
from datetime import timedelta

from benchmarks.cluster import REPLICAS, WORKERS, cluster, sleep_until
from benchmarks.designs.catalogue import NAIVE, NAIVE_PER_FIRE, OURS, Design
from benchmarks.peers import peers
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet

FIRES_PER_SECOND = 200
LATE_SECONDS = 10  # that a design may take after the last fire


def run(scale: Scale) -> Iterator[Sheet]:
    total = FIRES_PER_SECOND * scale.steady_seconds
    title = (
        f"Steady: {FIRES_PER_SECOND} fires/s for {scale.steady_seconds} s, {REPLICAS} replicas, MAX_WORKERS={WORKERS}"
    )
    columns = ["design", f"run of {total:,}", "run twice", "p50 late", "p99 late", "CPU of the replicas"]
    sheet = Sheet("steady", title, columns)
    for design in [OURS, NAIVE, NAIVE_PER_FIRE, *(peers() if scale.peers else [])]:
        _measure(sheet, design, scale.steady_seconds)
    yield sheet


def _measure(sheet: Sheet, design: Design, seconds: int) -> None:
    with cluster() as made:
        with design.start(made, FIRES_PER_SECOND, seconds) as (plan, processes):
            sleep_until(plan.at - timedelta(seconds=0.5))
            cpu_before = processes.cpu_seconds()
            sleep_until(plan.end + timedelta(seconds=LATE_SECONDS))
            cpu = processes.cpu_seconds() - cpu_before
        ((run, total, p50, p99),) = made.rows(
            f"""SELECT count(*), sum(runs), percentile_cont(0.5) WITHIN GROUP (ORDER BY late),
                       percentile_cont(0.99) WITHIN GROUP (ORDER BY late)
                FROM (SELECT extract(epoch FROM min(started_at) - scheduled_for) AS late, count(*) AS runs
                      FROM {design.table} WHERE started_at IS NOT NULL AND scheduled_for BETWEEN %s AND %s
                      GROUP BY schedule_id, scheduled_for) AS fires""",
            plan.at,
            plan.end,
        )
    twice, p50, p99 = int(total or 0) - int(run), p50 or 0, p99 or 0
    sheet.add(design.name, f"{run:,}", f"{twice:,}", f"{p50 * 1000:,.0f} ms", f"{p99 * 1000:,.0f} ms", f"{cpu:.1f} s")
    sheet.facts[design.name] = {
        "run": run, "run_twice": twice, "planned": plan.fires, "p50_seconds": float(p50), "p99_seconds": float(p99),
        "cpu_seconds": cpu,
    }  # fmt: skip
