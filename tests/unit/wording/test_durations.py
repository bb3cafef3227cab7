"""How durations read."""

import pytest

from services.wording.durations import duration, one_unit, whole_units


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 ms"),
        (0.0018, "2 ms"),
        (0.44, "440 ms"),
        (1.54, "1.5 s"),
        (42, "42 s"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (356_400, "4 d 3 h"),
    ],
)
def test_durations_are_told_in_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_what_is_still_to_come_is_told_in_whole_units() -> None:
    assert [whole_units(seconds) for seconds in (1, 5, 60, 12_000, 90_061)] == [
        "1 s",
        "5 s",
        "1 min",
        "3 h 20 min",
        "1 d 1 h",
    ]


def test_an_age_is_told_in_one_unit_and_below_a_second_not_at_all() -> None:
    assert [one_unit(seconds) for seconds in (0.9, 1, 179, 7000, 200_000)] == [None, "1 s", "3 min", "2 h", "2 d"]
