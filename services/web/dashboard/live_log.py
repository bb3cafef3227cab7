"""Progress and log of an execution, while it runs and afterwards: new lines are appended, older ones leave the page."""

from collections import deque
from uuid import UUID

from nicegui import ui

from services.ledger.listing import ExecutionRecord
from services.ledger.log_following import Look
from services.ledger.logs import BEGINNING, LoggedLine
from services.web.dashboard.look import card, clock
from services.web.dashboard.visitor import Visitor
from services.web.routing import API
from services.wording.visible import visible

MOST_LINES = 500


class LiveLog:
    def __init__(self, visitor: Visitor, execution_id: UUID) -> None:
        self._visitor, self._execution_id = visitor, execution_id
        self._follower = visitor.parts.history.follow_log(execution_id)
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._count, self._is_over = 0, False
        with card("Progress") as self._progress:
            self._words = ui.label()
            self._bar = ui.linear_progress(0.0, show_value=False)
        with card("Log") as self._log:
            self._left_out = ui.link("", f"{API}/executions/{execution_id}/log")
            self._text = ui.label().classes("es-mono es-log")
        self._progress.set_visibility(False)
        self._log.set_visibility(False)

    async def refresh(self, record: ExecutionRecord) -> None:
        if self._is_over:
            return
        if self._follower.position == BEGINNING:
            await self._begin()
        look = await self._visitor.read(self._follower.look)
        self._add(look.lines)
        self._show_progress(record, look)
        if look.is_over and not self._count:  # an execution from before this version, or without a live log
            self._add_texts((record.details or {}).get("log") or [])
        self._is_over = look.is_over

    async def _begin(self) -> None:
        """Of a long log only the end."""
        logs = self._visitor.parts.history.logs
        last = await self._visitor.read(lambda: logs.last(self._execution_id, MOST_LINES))
        if last:
            self._follower.position = last[-1].position
            self._count = last[0].position.line - 1
            self._add(last)

    def _add(self, lines: list[LoggedLine]) -> None:
        self._add_texts([self._words_of(line) for line in lines])

    def _add_texts(self, texts: list[str]) -> None:
        if not texts:
            return
        self._lines.extend(map(str, texts))
        self._count += len(texts)
        self._text.text = "\n".join(self._lines)
        left_out = self._count - len(self._lines)
        self._left_out.text = f"{left_out} earlier lines" if left_out else ""
        self._log.set_visibility(True)

    def _words_of(self, line: LoggedLine) -> str:
        level = "" if line.level == "INFO" else f"{line.level} "
        text = "\n".join(visible(part) for part in line.text.split("\n"))
        return f"{clock(self._visitor.local(line.at))} {level}{text}"

    def _show_progress(self, record: ExecutionRecord, look: Look) -> None:
        kept = (record.details or {}).get("progress") or {}
        done, total = kept.get("done"), kept.get("total")
        if done is None and look.state is not None:
            done, total = look.state.done, look.state.total
        if done is None:
            return
        self._words.text = f"{done:g}" + (f" of {total:g}" if total else "")
        self._bar.set_visibility(bool(total))
        if total:
            self._bar.value = max(0.0, min(1.0, done / total))
        self._progress.set_visibility(True)
