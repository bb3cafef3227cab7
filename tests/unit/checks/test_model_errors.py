"""Reasons of refused fields read alike, whichever model refused them."""

import pytest

from enhanced_scheduler.model_errors import reason_of


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Value error, The URL has no host", "the URL has no host"),
        ("Input should be a valid integer", "input should be a valid integer"),
        ("Field required", "is required"),
        ("Extra inputs are not permitted", "is not a field of this job"),
        ("", ""),
    ],
)
def test_a_message_of_pydantic_becomes_a_reason(message: str, reason: str) -> None:
    assert reason_of(message, unknown="is not a field of this job") == reason
