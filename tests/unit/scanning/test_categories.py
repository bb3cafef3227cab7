"""The table that says what cookies are for."""

from pathlib import Path

import pytest

from services.errors import ConfigurationError
from services.scanning.cookies.categories import CategoryRules
from services.scanning.findings import Category, SeenCookie

OWN = CategoryRules.load()


def category(name: str, domain: str = "example.com", rules: CategoryRules = OWN) -> Category:
    return rules.category_of(_seen(name, domain))[0]


def _seen(name: str, domain: str) -> SeenCookie:
    return SeenCookie(name=name, domain=domain, path="/", page_url="", request_url="")


@pytest.mark.parametrize(
    ("name", "domain", "expected"),
    [
        ("PHPSESSID", "example.com", Category.NECESSARY),
        ("phpsessid", "example.com", Category.NECESSARY),
        ("XSRF-TOKEN", "example.com", Category.NECESSARY),
        ("my_csrftoken", "example.com", Category.NECESSARY),
        ("CookieConsent", "example.com", Category.NECESSARY),
        ("pll_language", "example.com", Category.PREFERENCES),
        ("_ga", "example.com", Category.ANALYTICS),
        ("_ga_1A2B3C", "example.com", Category.ANALYTICS),
        ("_gali", "example.com", Category.UNKNOWN),  # _ga is not a beginning
        ("_pk_id.1.abcd", "example.com", Category.ANALYTICS),
        ("_hjSessionUser_123", "example.com", Category.ANALYTICS),
        ("_fbp", "example.com", Category.MARKETING),
        ("_fbx", "example.com", Category.UNKNOWN),
        ("IDE", "doubleclick.net", Category.MARKETING),
        ("IDE", "example.com", Category.UNKNOWN),  # only that vendor's is meant
        ("anything", "ad.doubleclick.net", Category.MARKETING),
        ("fr", "www.facebook.com", Category.MARKETING),
        ("NID", "www.google.de", Category.MARKETING),
        ("", "example.com", Category.UNKNOWN),
        ("x" * 4000, "example.com", Category.UNKNOWN),
    ],
)
def test_well_known_cookies_have_a_category(name: str, domain: str, expected: Category) -> None:
    assert category(name, domain) is expected


def test_the_rule_that_decided_is_told() -> None:
    assert OWN.category_of(_seen("_ga_XYZ", "a.example"))[1] == "_ga_* (Google Analytics)"
    assert OWN.category_of(_seen("nobody-knows", "a.example"))[1] is None


def test_every_rule_says_why() -> None:
    text = (Path(__file__).parents[3] / "services/scanning/cookies/cookie_rules.yaml").read_text()
    rules = [line for line in text.splitlines() if line.lstrip().startswith("- {")]
    assert len(rules) == len(OWN.rules)
    assert [line for line in rules if "why:" not in line] == []


def test_users_rules_come_first(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n- {name: _ga, category: marketing}\n- {name: 'shop_*', domain: shop.example, category: necessary}\n"
    )
    rules = CategoryRules.load(file)
    assert category("_ga", rules=rules) is Category.MARKETING
    assert category("shop_1", "www.shop.example", rules) is Category.NECESSARY
    assert category("shop_1", "other.example", rules) is Category.UNKNOWN
    assert category("_fbp", rules=rules) is Category.MARKETING


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("rules: [", "is not YAML: while parsing a flow node"),
        ("", "must have the single key `rules` with a list of rules"),
        ("- {name: a, category: analytics}", "must have the single key `rules` with a list of rules"),
        ("rules: []\nmore: 1", "must have the single key `rules` with a list of rules"),
        ("rules: [_ga]", "rule 1: input should be a valid dictionary"),
        ("rules: [{name: a}]", "rule 1.category: is required"),
        ("rules: [{name: a, category: necessary}, {name: b, category: nice}]", "rule 2.category: input should be"),
        ("rules: [{name: '', category: necessary}]", "rule 1.name: string should have at least 1 character"),
        ("rules: [{name: a, category: necessary, url: x}]", "rule 1.url: extra inputs are not permitted"),
    ],
)
def test_a_broken_table_is_named_with_the_rule_and_the_reason(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        CategoryRules.load(file)
    assert str(caught.value).startswith(f"{file}: {reason}")


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: no such file"):
        CategoryRules.load(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        CategoryRules.load(tmp_path / "binary.yaml")
