"""URLs for display: without possible secrets."""

from urllib.parse import urlsplit

from requests.utils import requote_uri

SHOWN_CHARACTERS = 200


def without_userinfo(url: str) -> str:
    """`https://anna:hunter2@example.com/` -> `https://example.com/`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url


def requoted(text: str) -> str:
    """As it appears in the URL of a request."""
    return requote_uri(text)


def shown_url(url: str) -> str:
    """Without user name, password and fragment, with a masked query, and shortened."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    text = parts._replace(netloc=host, query="***" if parts.query else "", fragment="").geturl()
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
