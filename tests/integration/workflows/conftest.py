"""The outside world of the workflows, for one test."""

from collections.abc import Iterator

import pytest

from tests.support.pipeline_stand_ins import PipelineWorld


@pytest.fixture
def world() -> Iterator[PipelineWorld]:
    with PipelineWorld() as world:
        yield world
