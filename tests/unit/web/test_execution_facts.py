"""How long an execution will still take, in words."""

import pytest

from services.web.dashboard.execution_facts import time_left


@pytest.mark.parametrize(
    ("usual", "elapsed", "words"),
    [
        (60.0, 20.0, "about 40 s"),
        (60.0, 90.0, "longer than usual, by 30 s"),
        (60.0, 60.0, "longer than usual, by 0 ms"),
    ],
)
def test_the_time_left_is_told_from_the_usual_duration(usual: float, elapsed: float, words: str) -> None:
    assert time_left(usual, elapsed) == words
