"""How a rule reads: its thresholds, its filters, and when it sends."""

from services.notifications.rules import RuleRecord
from services.wording.durations import duration


def thresholds(rule: RuleRecord) -> dict[str, str]:
    """Event -> `by more than 5 min`."""
    slow = [] if rule.slower_than_seconds is None else [f"longer than {duration(rule.slower_than_seconds)}"]
    slow += [] if rule.slower_than_usual is None else [f"longer than {rule.slower_than_usual:g} times the usual"]
    found = {
        "failing": f"after {rule.after_failures} failures in a row" if rule.after_failures else "",
        "late": f"by more than {duration(rule.late_seconds)}" if rule.late_seconds else "",
        "slow": " or ".join(slow),
        "no_success": f"for {duration(rule.no_success_seconds)}" if rule.no_success_seconds else "",
    }
    return {event: words for event, words in found.items() if words}


def events_of(rule: RuleRecord) -> str:
    """`failed, late by more than 5 min`."""
    words = thresholds(rule)
    return ", ".join(f"{event} {words[event]}" if event in words else event for event in rule.events)


def filters(rule: RuleRecord) -> str:
    kinds = {"schedule": rule.schedule_ids, "tag": rule.tags, "type": rule.job_types, "queue": rule.queues}
    words = [f"{kind} {' or '.join(str(each) for each in values)}" for kind, values in kinds.items() if values]
    return ", ".join(words) or "everything"


def when(rule: RuleRecord) -> str:
    if (problem := rule.problem) is not None:
        return f"sends nothing: {problem}"
    words = []
    if rule.quiet_from is not None:
        passes = ", except errors" if rule.quiet_errors_pass else ""
        words.append(f"quiet {rule.quiet_from}-{rule.quiet_to} {rule.quiet_timezone}{passes}")
    if rule.digest != "none":
        day = f" on {rule.digest_day}" if rule.digest == "weekly" else ""
        words.append(f"{rule.digest} digest{day} at {rule.digest_at} {rule.digest_timezone}")
    return "; ".join(words) or "at once"
