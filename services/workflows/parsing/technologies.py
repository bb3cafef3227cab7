"""Detects a site's technologies by their traces in its home page. Pure."""

import re
from collections.abc import Mapping

from services.workflows.parsing.page_content import PageContent

# name, location of the trace, trace
_TRACES: tuple[tuple[str, str, str], ...] = (
    ("WordPress", "generator", r"wordpress"),
    ("WordPress", "addresses", r"/wp-(content|includes|json)/"),
    ("Elementor", "generator", r"elementor"),
    ("Elementor", "addresses", r"/plugins/elementor"),
    ("Elementor", "body", r"\belementor-"),
    ("WooCommerce", "addresses", r"/plugins/woocommerce/"),
    ("Yoast SEO", "addresses", r"/plugins/wordpress-seo"),
    ("Joomla", "generator", r"joomla"),
    ("Drupal", "generator", r"drupal"),
    ("TYPO3", "generator", r"typo3"),
    ("Shopify", "addresses", r"cdn\.shopify\.com"),
    ("Wix", "generator", r"wix\.com"),
    ("Wix", "addresses", r"static\.wixstatic\.com|parastorage\.com"),
    ("Squarespace", "generator", r"squarespace"),
    ("Squarespace", "addresses", r"static1?\.squarespace\.com"),
    ("Webflow", "generator", r"webflow"),
    ("Next.js", "addresses", r"/_next/static/"),
    ("Nuxt", "addresses", r"/_nuxt/"),
    ("jQuery", "addresses", r"jquery[.\-\w]{0,40}\.js"),
    ("Bootstrap", "addresses", r"bootstrap[.\-\w]{0,40}\.(js|css)"),
    ("Google Tag Manager", "addresses", r"googletagmanager\.com/gtm\.js"),
    ("Google Analytics", "addresses", r"google-analytics\.com|googletagmanager\.com/gtag"),
    ("Cloudflare", "headers", r"server: cloudflare"),
    ("nginx", "headers", r"server: nginx"),
    ("Apache", "headers", r"server: apache"),
    ("PHP", "headers", r"x-powered-by: php"),
)
_COMPILED = tuple((name, where, re.compile(trace, re.IGNORECASE)) for name, where, trace in _TRACES)
_VERSION = re.compile(r"wordpress ([0-9][0-9.]{0,15})", re.IGNORECASE)


def technologies_of(page: PageContent, headers: Mapping[str, str]) -> tuple[str, ...]:
    """In table order, each once."""
    places = {
        "generator": page.metas.get("generator", ""),
        "addresses": "\n".join(tag.get("src") or tag.get("href") for tag in page.tags),
        "body": page.body_class,
        "headers": "\n".join(f"{name.lower()}: {value}" for name, value in headers.items()),
    }
    found = dict.fromkeys(name for name, where, trace in _COMPILED if trace.search(places[where]))
    if "Elementor" in found or "WooCommerce" in found:  # they are parts of it
        found = {"WordPress": None, **found}
    return tuple(found)


def wordpress_version_of(page: PageContent) -> str | None:
    found = _VERSION.search(page.metas.get("generator", ""))
    return found[1].rstrip(".") if found else None
