"""The ledger of the limits benchmark: how many handlers of one key ran at once."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from benchmarks.designs.keyed import RECORD, Call, calls_in
from benchmarks.limits import most_at_once


def call(began_at: float, ended_at: float | None, key: int = 1) -> Call:
    return Call(uuid4(), key, began_at, ended_at)


@pytest.mark.parametrize(
    ("calls", "most"),
    [
        ([], 0),
        ([call(0, 1), call(1, 2)], 1),
        ([call(0, 2), call(1, 3), call(1.5, 1.6)], 3),
        ([call(0, 2, key=1), call(1, 3, key=2)], 1),
        ([call(0, None), call(5, 6)], 2),
    ],
    ids=["none", "one after the other", "three overlap", "two keys", "one never ended"],
)
def test_calls_of_one_key_are_counted_while_they_overlap(calls: list[Call], most: int) -> None:
    assert most_at_once(calls) == most


def test_a_call_is_read_from_its_two_records_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    file, execution, schedule = tmp_path / "ledger", uuid4(), UUID(int=7)
    records = [RECORD.pack(execution.bytes, schedule.bytes, 3, at, at > 1) for at in (1.0, 2.0)]
    file.write_bytes(b"".join(records) + records[0][:5])
    assert calls_in(file) == [Call(schedule, 3, 1.0, 2.0)]
    assert calls_in(tmp_path / "nothing") == []
