"""One item of the external API as a schedule: `{"domain_config_id", "data": {"domain", …, "schedule": {…}}}`."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from database.models import Source

logger = logging.getLogger(__name__)

# What the API says about the scan itself, in the one spelling in which it is kept.
SCAN_FIELDS = {
    "description": "description",
    "allow_deep_scan": "allow_deep_scan",
    "maxPages": "max_pages",
    "scanDepth": "scan_depth",
    "maxRetries": "max_retries",
    "customPages": "custom_pages",
    "accept_selector": "accept_selector",
}


def definitions(items: Iterable[Any], skipped: list[str]) -> Iterator[dict[str, Any]]:
    """The items that have the documented form; the reasons of the others are added to `skipped`."""
    for number, item in enumerate(items, 1):
        try:
            yield _definition(item)
        except (TypeError, KeyError, AttributeError) as error:
            skipped.append(str(error))
            logger.warning(
                "item %d of the API is skipped: %s", number, _why(error), extra={"event": "sync_item_skipped"}
            )


def _definition(item: Mapping[str, Any]) -> dict[str, Any]:
    data, schedule = item["data"], item["data"]["schedule"]
    return {
        "domain_config_id": item["domain_config_id"],
        "domain": data["domain"],
        "frequency": schedule["frequency"],
        "time_config": schedule["time"],
        "source": Source.API.value,
        "job_type": "cookie_scan",
        "job_config": {ours: data[theirs] for theirs, ours in SCAN_FIELDS.items() if data.get(theirs) is not None},
    }


def _why(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else "it is not of the documented form"
