"""JSON that a user gives on the command line or in a file."""

from typing import Any

from services.checks import strict_json
from services.errors import InvalidInput, Problem


def json_value(where: str, text: str) -> Any:
    """Raises InvalidInput that names `where`: an option, or a line of a file."""
    try:
        return strict_json.loads(text)
    except strict_json.DuplicateKey as error:
        raise InvalidInput(Problem(where, str(error))) from None
    except ValueError as error:
        raise InvalidInput(Problem(where, f"is not JSON: {error}")) from None
    except RecursionError:
        raise InvalidInput(Problem(where, "is nested too deeply")) from None
