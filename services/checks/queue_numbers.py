"""The numbers of a queue's runs, as the job_config of a `workflow` schedule says them. Unset: the queue's default."""

from pydantic import BaseModel, ConfigDict, Field

LONGEST_SECONDS = 30 * 86_400  # as the timeout of a schedule


class QueueNumbers(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    concurrency: int | None = Field(
        None, ge=1, le=500, description="items that one run works on at once; unset: the queue's default"
    )
    run_budget_seconds: float | None = Field(
        None,
        ge=1,
        le=LONGEST_SECONDS,
        description="time budget of a run; after it no further items are claimed; unset: the queue's default",
    )
    item_timeout_seconds: float | None = Field(
        None, gt=0, le=LONGEST_SECONDS, description="how long one item may take; unset: the queue's default"
    )
    max_attempts: int | None = Field(
        None, ge=1, le=100, description="attempts before an item becomes a dead letter; unset: the queue's default"
    )

    def given(self) -> dict[str, int | float]:
        """Only the given numbers, as an operator would write them: 600, not 600.0."""
        said = self.model_dump(include=set(QueueNumbers.model_fields), exclude_none=True)
        return {name: int(number) if number == int(number) else number for name, number in said.items()}
