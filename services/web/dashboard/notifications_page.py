"""Notifications: the rules, the channels, and the deliveries: sent, waiting or failed."""

from collections.abc import Callable
from typing import Protocol

from services.web.dashboard.channels_section import ChannelsSection
from services.web.dashboard.deliveries_section import DeliveriesSection
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import keep_fresh
from services.web.dashboard.rules_section import RulesSection
from services.web.dashboard.visitor import Visitor

REFRESH_SECONDS = 5.0


class Section(Protocol):
    async def refresh(self) -> None: ...

    async def keep_up(self) -> None:
        """Refresh what may change while it is being read."""


# Each a file of its own, from top to bottom.
SECTIONS: tuple[Callable[[Visitor], Section], ...] = (RulesSection, ChannelsSection, DeliveriesSection)


@for_visitors("/notifications")
async def notifications(visitor: Visitor) -> None:
    with frame(visitor, "Notifications", "/notifications"):
        sections = [section(visitor) for section in SECTIONS]

        async def keep_up() -> None:
            for section in sections:
                await section.keep_up()

        for section in sections:
            await section.refresh()
        keep_fresh(REFRESH_SECONDS, keep_up)
