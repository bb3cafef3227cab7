"""When an answer is trusted enough to switch off what it does not have."""

from uuid import uuid4

import pytest

from services.api_sync.removals import Missing, Removals, refusal


@pytest.mark.parametrize(
    ("known", "missing", "max_percent", "refused"),
    [
        (100, 0, 20, False), (100, 20, 20, False), (100, 21, 20, True), (5, 1, 20, False), (4, 1, 20, True),
        (1, 1, 20, True), (100, 1, 0, True), (100, 100, 100, False), (0, 0, 0, False), (1000, 201, 20, True),
    ],
)  # fmt: skip
def test_more_than_the_allowed_share_is_a_landslide(known: int, missing: int, max_percent: int, refused: bool) -> None:
    said = refusal(removals(known, missing), answered=1, unidentified=0, max_percent=max_percent, allowed=False)
    assert (said is not None) == refused
    if said:
        assert said == (
            f"{missing} of {known} schedules are missing, more than {max_percent} % (API_SYNC_MAX_REMOVALS_PERCENT)"
        )


def removals(known: int, missing: int) -> Removals:
    return Removals(known, tuple(Missing(uuid4(), "x.example") for _ in range(missing)), ())


def test_an_empty_list_is_a_landslide_whatever_the_share() -> None:
    said = refusal(removals(3, 3), answered=0, unidentified=0, max_percent=100, allowed=False)
    assert said == "the response is an empty list, but 3 schedules were in it before"
    assert refusal(removals(0, 0), answered=0, unidentified=0, max_percent=20, allowed=False) is None


def test_a_person_may_let_a_landslide_through() -> None:
    assert refusal(removals(3, 3), answered=0, unidentified=0, max_percent=20, allowed=True) is None
    assert refusal(removals(10, 9), answered=1, unidentified=0, max_percent=20, allowed=True) is None


@pytest.mark.parametrize("allowed", [False, True])
def test_items_that_cannot_be_identified_may_be_any_of_the_missing(allowed: bool) -> None:
    said = refusal(removals(100, 2), answered=99, unidentified=1, max_percent=20, allowed=allowed)
    assert said == "1 of the items cannot be identified: any of the 2 missing schedules may be meant"
