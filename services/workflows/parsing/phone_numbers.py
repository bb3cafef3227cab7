"""Phone numbers in links and text, in their international spelling (E.164). Pure."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumberFormat, PhoneNumberMatcher

MAX_LINKS, MAX_LINK = 1_000, 300  # links considered; characters of each
MAX_LINES, MAX_LINE, MAX_TRIES = 200, 1_000, 20  # a try takes a quarter of a millisecond

_LOOKS_LIKE_ONE = re.compile(r"(?<!\d)\+?\(?\d(?:[\s().\-/\u2010-\u2015]{0,3}\d){6,14}(?!\d)")
_COUNTRY_OF_TLD = {"uk": "GB", "eu": None, "su": None}


@dataclass(frozen=True, slots=True)
class Phone:
    number: str
    line: int


class PhonesByLine:
    """The number nearest to a line; the first of several."""

    def __init__(self, phones: Sequence[Phone]) -> None:
        self._first: dict[int, tuple[int, str]] = {}
        for rank, phone in enumerate(phones):
            self._first.setdefault(phone.line, (rank, phone.number))
        self._lines = sorted(self._first)

    def nearest(self, line: int) -> str | None:
        at = bisect_left(self._lines, line)
        beside = self._lines[max(0, at - 1) : at + 1]
        return min(((abs(each - line), *self._first[each]) for each in beside), default=(0, 0, None))[2]


def region_of(country: str | None, domain: str, language: str) -> str | None:
    """The country of numbers without a prefix: given by the caller, by the domain, or by a language such as `en-US`."""
    tld = domain.rpartition(".")[2].upper()
    said = [
        (country or "").upper(),
        _COUNTRY_OF_TLD.get(tld.lower(), tld),
        language.replace("_", "-").partition("-")[2],
    ]
    return next(
        (region.upper() for region in said if region and region.upper() in phonenumbers.SUPPORTED_REGIONS), None
    )


def number_of_link(href: str, region: str | None) -> str | None:
    """`tel:+1-716-555-0100`; the author of a link meant a number, so it need not be an assigned one."""
    try:
        number = phonenumbers.parse(unquote(href[:MAX_LINK].partition(":")[2]).partition(";")[0], region)
    except NumberParseException:
        return None
    return _e164(number) if phonenumbers.is_possible_number(number) else None


def numbers_in(lines: Sequence[str], region: str | None, check: Callable[[], object] = lambda: None) -> Iterator[Phone]:
    """Numbers that can be phone numbers; order numbers, dates and other long runs of digits are rejected."""
    candidates = [(number, line) for number, line in enumerate(lines) if _LOOKS_LIKE_ONE.search(line)]
    for number, line in candidates[:MAX_LINES]:
        check()
        for found in PhoneNumberMatcher(line[:MAX_LINE], region, max_tries=MAX_TRIES):
            yield Phone(_e164(found.number), number)


def _e164(number: phonenumbers.PhoneNumber) -> str:
    return phonenumbers.format_number(number, PhoneNumberFormat.E164)
