"""The exponent that `make bench` prints for what a cost does as something grows."""

import pytest

from benchmarks.growth import exponent
from benchmarks.replicas import growing


@pytest.mark.parametrize("power", [0, 0.15, 0.59, 1])
def test_a_power_law_has_its_own_exponent(power: float) -> None:
    assert exponent([(number, 0.0003 * number**power) for number in (3, 6, 12)]) == pytest.approx(power)


def test_a_cost_that_the_clock_cannot_see_does_not_grow() -> None:
    assert exponent([(3, -0.0000001), (12, 0.0)]) == 0


def test_one_point_says_nothing_of_growth() -> None:
    assert exponent([(3, 0.0003)]) == 0


def test_the_growth_of_replicas_begins_with_three_of_them() -> None:
    assert growing([1, 3, 6, 12]) == [3, 6, 12]


def test_a_quick_look_has_only_one_and_three() -> None:
    assert growing([1, 3]) == [1, 3]
