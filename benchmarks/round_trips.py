"""Round trips and commits per fire of a burst, counted by the servers: Postgres' log of statements and its statistics,
Redis' statistics of commands. Logging costs time, so nothing else is measured here.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import REPLICAS, WORKERS, cluster, sleep_until
from benchmarks.designs.catalogue import OURS
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from services.redis_client import RedisClient
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

LOG_STATEMENTS = {"log_statement": "all", "log_line_prefix": "%a|"}


def run(scale: Scale) -> Iterator[Sheet]:
    columns = ["fires", "Postgres round trips per fire", "commits per fire", "Redis round trips per fire"]
    title = f"What a fire of a burst asks of the servers, {REPLICAS} replicas, MAX_WORKERS={WORKERS}"
    sheet = Sheet("round-trips", title, columns)
    for count in scale.bursts:
        doing(f"{count:,} fires")
        statements, commits, redis = _count(count)
        sheet.add(f"{count:,}", f"{statements / count:.3f}", f"{commits / count:.3f}", f"{redis / count:.3f}")
        sheet.facts[str(count)] = {
            "postgres_per_fire": statements / count, "commits_per_fire": commits / count,
            "redis_per_fire": redis / count,
        }  # fmt: skip
    yield sheet


def _count(count: int) -> tuple[int, int, int]:
    """From just before the instant until the last end is written; heartbeats and polls of that time count too."""
    with cluster(LOG_STATEMENTS) as made, OURS.start(made, count, 1) as (plan, _):
        sleep_until(plan.at)
        redis = RedisClient(made.environment["REDIS_URL"])
        log = made.directory / "servers" / "postgres.log"
        before = _statements(log), _commits(made), _calls(redis)
        eventually(
            lambda: made.rows("SELECT count(*) FROM job_executions WHERE status = 'success'") == [(count,)], 90, 1
        )
        after = _statements(log), _commits(made), _calls(redis)
        redis.close()
    statements, commits, calls = (later - earlier for earlier, later in zip(before, after, strict=True))
    return statements, commits, calls


def _statements(log: Path) -> int:
    """Each message to the server is one line; ours, not the benchmark's own."""
    return sum("statement: " in line and "replica-" in line.split("|", 1)[0] for line in log.open(errors="replace"))


def _commits(made: Cluster) -> int:
    return int(made.rows("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")[0][0])


def _calls(redis: RedisClient) -> int:
    stats = redis.commands.info("commandstats")
    return sum(int(value["calls"]) for name, value in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))
