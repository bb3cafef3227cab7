"""The reason why a model refused a field: pydantic's message in the words of this project."""

PREFIX = "Value error, "  # pydantic's, before the message of a validator
REQUIRED = "Field required"
UNKNOWN = "Extra inputs are not permitted"


def reason_of(message: str, unknown: str = UNKNOWN) -> str:
    """`unknown` is the reason for a field that the model does not have."""
    reason = message.removeprefix(PREFIX)
    reason = {REQUIRED: "is required", UNKNOWN: unknown}.get(reason, reason)
    return reason[:1].lower() + reason[1:]
