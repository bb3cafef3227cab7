"""A scan as one HTML file for a privacy officer: no scripts, no external requests, printable. Pure.

Start reading at `html_report`; sections.py has the sections, report.css the looks.
"""

from pathlib import Path

from services.scanning.findings import ChangeKind, EngineName, Scan
from services.scanning.report.markup import Markup, facts, tag
from services.scanning.report.sections import SECTIONS
from services.scanning.report.words import (
    before_consent,
    duration,
    minute,
    not_necessary,
    summary_sentences,
    third_party,
)
from services.wording.counts import counted

STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
NO_REQUESTS = "default-src 'none'; style-src 'unsafe-inline'"
ENGINES = {EngineName.HTTP: "plain requests, without running scripts", EngineName.BROWSER: "a real browser (Chromium)"}


def html_report(scan: Scan) -> str:
    title = f"Cookie report for {scan.domain}"
    main = tag("main", *(Markup(f"\n{section(scan)}\n") for section in SECTIONS))
    body = tag("body", _header(scan, title), main, _footer(scan))
    return f"<!DOCTYPE html>\n{tag('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=NO_REQUESTS),
        tag("meta", name="robots", content="noindex"),
        tag("title", title),
        Markup(f"<style>\n{STYLE}</style>"),
    )


def _header(scan: Scan, title: str) -> Markup:
    how = f"{minute(scan.started_at)}, with {ENGINES[scan.engine]}"
    return tag(
        "header",
        tag("h1", title),
        tag("p", how, class_="when"),
        tag("p", " ".join(summary_sentences(scan)), class_="summary"),
        _figures(scan),
    )


def _figures(scan: Scan) -> Markup:
    figures = [
        ("found", len(scan.cookies)),
        ("before consent and not known to be necessary", len(not_necessary(before_consent(scan)))),
        ("from third parties", len(third_party(scan))),
        ("pages read", sum(page.error is None for page in scan.pages)),
    ]
    if scan.previous_scan_id is not None:
        figures.insert(
            3, ("new since the previous scan", sum(change.kind is ChangeKind.NEW for change in scan.changes))
        )
    return facts((name, f"{count:,}") for name, count in figures)


def _footer(scan: Scan) -> Markup:
    took = duration(max(1, round((scan.finished_at - scan.started_at).total_seconds())))
    pages = counted(len(scan.pages), "page")
    return tag(
        "footer",
        tag("p", "This report shows what a program observed. It is not legal advice."),
        tag("p", f"Scan {scan.scan_id}, finished {minute(scan.finished_at)}: {pages} in {took}."),
    )
