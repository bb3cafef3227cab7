"""On the PYTHONPATH of a replica: shifts its clock by SKEW_SECONDS from the start."""

import os
from datetime import UTC, datetime, timedelta

import time_machine
from time_machine import escape_hatch

_skew = timedelta(seconds=float(os.environ["SKEW_SECONDS"]))
_coordinates = time_machine.travel(datetime.now(UTC) + _skew, tick=True).start()


def _skew_now() -> timedelta:
    return datetime.now(UTC) - escape_hatch.datetime.datetime.now(UTC)


while abs(_skew_now() - _skew) > timedelta(milliseconds=5):  # setting it can take several seconds
    _coordinates.move_to(escape_hatch.datetime.datetime.now(UTC) + _skew)
