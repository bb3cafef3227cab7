"""100,000 schedules in the repository: bulk save, count, pages, search, export, import; seconds and peak memory."""

import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from rich.table import Table

from benchmarks.scale import Scale
from benchmarks.sheet import Sheet, from_table
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.cli.schedule_files import read_documents, write_documents
from services.embedded import EmbeddedServers
from services.schedule_repository import ScheduleRepository
from services.schedules.listing import ScheduleFilter
from tests.support.schedules import many

COUNT = 100_000


def run(scale: Scale) -> Iterator[Sheet]:
    with tempfile.TemporaryDirectory() as directory, EmbeddedServers(Path(directory) / "servers") as servers:
        db = DatabaseConnection(servers.addresses.database_url)
        upgrade(db)
        yield _measure(ScheduleRepository(db), Path(directory) / "schedules.yaml")
        db.close()


def _measure(repository: ScheduleRepository, file: Path) -> Sheet:
    def export() -> None:
        with file.open("w") as stream:
            write_documents(repository.iter_schedules(), stream)

    steps: dict[str, Callable[[], object]] = {
        "bulk save, all new": lambda: repository.save_schedules(many(COUNT)),
        "count": repository.count_schedules,
        "first page by domain": repository.list_schedules,
        "first page by next_run": lambda: repository.list_schedules(sort="next_run"),
        "search for a part of a domain": lambda: repository.list_schedules(ScheduleFilter(search="09999")),
        "read all": lambda: sum(1 for _ in repository.iter_schedules()),
        "export to YAML": export,
        "import from YAML, all unchanged": lambda: repository.save_schedules(read_documents(file.open(), file.name)),
    }
    table = Table("step", "seconds", "peak MB", title=f"repository, {COUNT:,} schedules")
    for name, step in steps.items():
        start = perf_counter()
        step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        table.add_row(name, f"{perf_counter() - start:.2f}", str(peak))
    return from_table("repository", table)
