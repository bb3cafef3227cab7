"""50,000 items of the external API: the first sync, then nothing new, unchanged, a few changes, many removals.

The API is a process of its own; seconds by the clock, seconds of CPU and peak memory of the syncing process. The
promise: first under 30 s, unchanged under 5 s.
"""

import json
import multiprocessing
import resource
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time

from rich.table import Table

from benchmarks.scale import Scale
from benchmarks.sheet import Sheet, from_table
from config import Settings
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.api_sync.report import SyncReport
from services.api_sync.sync import open_api_sync
from services.embedded import EmbeddedServers
from tests.support.api_stand_in import ApiStandIn, item, many_items

COUNT = 50_000


def run(scale: Scale) -> Iterator[Sheet]:
    ours, theirs = multiprocessing.Pipe()
    api = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    api.start()
    url, size_bytes = ours.recv()
    with tempfile.TemporaryDirectory() as directory, EmbeddedServers(Path(directory) / "servers") as servers:
        address = servers.addresses.database_url
        settings = Settings(database_url=address, api_url=url, fetch_allowed_networks="127.0.0.0/8", request_timeout=60)
        db = DatabaseConnection(address)
        upgrade(db)
        yield _measure(settings, db, lambda change: _tell(ours, change), size_bytes)
        db.close()
    ours.send("end")
    api.join(10)


def _measure(settings: Settings, db: DatabaseConnection, tell: Callable[[str], None], size_bytes: int) -> Sheet:
    def sync(preview: bool = False) -> SyncReport:
        with open_api_sync(settings, db, allow_removals=False) as api_sync:
            return api_sync.preview() if preview else api_sync.run()

    steps: list[tuple[str, str, Callable[[], SyncReport]]] = [
        ("dry run, all new", "", lambda: sync(preview=True)),
        ("first sync, all new", "", sync),
        ("nothing new (304)", "", sync),
        ("unchanged, the whole answer", "without etag", sync),
        ("100 changed", "100 changed", sync),
        ("5,000 vanished", "5000 vanished", sync),
        ("5,000 came back", "all", sync),
        ("all changed", "all changed", sync),
    ]
    title = f"sync of {COUNT:,} items, {size_bytes / 1e6:.1f} MB of JSON"
    table = Table("step", "seconds", "CPU s", "peak MB", "what", title=title)
    for name, change, step in steps:
        if change:
            tell(change)
        start, start_cpu = perf_counter(), process_time()
        report = step()
        seconds, cpu = perf_counter() - start, process_time() - start_cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        told = ", ".join(f"{count} {kind.value}" for kind, count in report.counts.items() if count)
        table.add_row(name, f"{seconds:.2f}", f"{cpu:.2f}", str(peak), told or report.outcome.value)
    return from_table("sync", table)


def _serve(pipe: Connection) -> None:
    with ApiStandIn(many_items(COUNT)) as api:
        pipe.send((api.url, len(json.dumps({"data": api.items}))))
        while (change := pipe.recv()) != "end":
            match change:
                case "without etag":
                    api.etag = False
                case "100 changed":
                    api.items[:100] = [item(number, maxPages=7) for number in range(100)]
                case "5000 vanished":
                    del api.items[-5000:]
                case "all":
                    api.items = many_items(COUNT)
                case "all changed":
                    api.items = [item(number, maxPages=9) for number in range(COUNT)]
            pipe.send("done")


def _tell(pipe: Connection, change: str) -> None:
    pipe.send(change)
    pipe.recv()
