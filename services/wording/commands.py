"""How this installation's programs are called: our texts name those of a checkout, the wheel has one command."""

import re

from enhanced_scheduler.application import PRIVATE, ROOT

COMMAND = "enhanced-scheduler"
_CALLS = (
    (re.compile(r"python run_migrations\.py"), f"{COMMAND} migrate"),
    (re.compile(r"python services/enhanced_scheduler\.py"), f"{COMMAND} replica"),
    (re.compile(r"(python )?manage\.py\b"), COMMAND),
)


def as_called_here(text: str) -> str:
    """The text with the calls that work here."""
    if ROOT != PRIVATE:
        return text
    for call, ours in _CALLS:
        text = call.sub(ours, text)
    return text
