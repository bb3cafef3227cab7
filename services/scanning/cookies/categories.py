"""Cookie categories by a table of rules: cookie_rules.yaml here, and users' own file, whose rules take precedence.

The first rule whose name and domain match decides; without one the category is unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enhanced_scheduler.model_errors import reason_of
from services.errors import ConfigurationError
from services.scanning.findings import Category, SeenCookie

OWN_TABLE = Path(__file__).with_name("cookie_rules.yaml")
MAX_FILE_BYTES = 1024 * 1024


class RuleEntry(BaseModel):
    """One rule of a table, as written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=256)  # * matches any text, ? one character, case-insensitive
    domain: str = Field("*", min_length=1, max_length=256)  # the cookie's domain, or one above it
    category: Category
    vendor: str = Field("", max_length=256)
    why: str = Field("", max_length=1000)


@dataclass(frozen=True, slots=True)
class CategoryRule:
    name: re.Pattern[str]
    domain: re.Pattern[str]
    category: Category
    label: str  # stored with the cookie

    @classmethod
    def of(cls, entry: RuleEntry) -> Self:
        label = f"{entry.name} ({entry.vendor})" if entry.vendor else entry.name
        return cls(_pattern(entry.name), _pattern(entry.domain), entry.category, label)

    def fits(self, name: str, domains: Sequence[str]) -> bool:
        return bool(self.name.match(name)) and any(self.domain.match(domain) for domain in domains)


@dataclass(frozen=True, slots=True)
class CategoryRules:
    rules: tuple[CategoryRule, ...]

    @classmethod
    def load(cls, users_file: Path | None = None) -> Self:
        """Raises ConfigurationError with the file, the entry and the reason."""
        users = [] if users_file is None else _read(users_file)
        return cls((*users, *_own_rules()))

    def category_of(self, cookie: SeenCookie) -> tuple[Category, str | None]:
        """The category, and the rule that decided."""
        domains = _with_parents(cookie.domain)
        for rule in self.rules:
            if rule.fits(cookie.name, domains):
                return rule.category, rule.label
        return Category.UNKNOWN, None


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob), re.IGNORECASE)


def _with_parents(domain: str) -> list[str]:
    """`a.b.example` -> itself, `b.example`, `example`: a rule for a domain also covers its subdomains."""
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels))]


@cache
def _own_rules() -> tuple[CategoryRule, ...]:
    """A tenth of a second of work, and the program's own file does not change while it runs."""
    return tuple(_read(OWN_TABLE))


def _read(file: Path) -> list[CategoryRule]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{file}: is larger than {MAX_FILE_BYTES // 1024} KiB")
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: is not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or set(content) != {"rules"} or not isinstance(content["rules"], list):
        raise ConfigurationError(f"{file}: must have the single key `rules` with a list of rules")
    return [_rule(file, number, entry) for number, entry in enumerate(content["rules"], 1)]


def _rule(file: Path, number: int, entry: Any) -> CategoryRule:
    try:
        return CategoryRule.of(RuleEntry.model_validate(entry))
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False)
        where = ".".join(["", *map(str, problem["loc"])])
        raise ConfigurationError(f"{file}: rule {number}{where}: {reason_of(problem['msg'])}") from None
