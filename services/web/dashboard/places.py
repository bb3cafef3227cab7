"""The entries of the navigation, and the stylesheet of all pages."""

from dataclasses import dataclass
from pathlib import Path

STYLE = (Path(__file__).parent / "style.css").read_text()


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    title: str
    icon: str
    of_workflows: bool = False


PLACES = [
    Place("/", "Overview", "monitor_heart"),
    Place("/schedules", "Schedules", "event_repeat"),
    Place("/executions", "Executions", "list_alt"),
    Place("/limits", "Limits", "speed"),
    Place("/notifications", "Notifications", "notifications"),
    Place("/timeline", "Timeline", "view_timeline"),
    Place("/scans", "Scans", "cookie"),
    Place("/places", "Places", "storefront", of_workflows=True),
    Place("/queues", "Queues", "low_priority", of_workflows=True),
    Place("/contacts", "Contacts", "contact_mail", of_workflows=True),
    Place("/replicas", "Replicas", "dns"),
]
