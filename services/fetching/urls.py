"""URLs for the eyes of people: without what may be a secret."""

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
    """As it looks in the URL of a request."""
    return requote_uri(text)


def shown_url(url: str) -> str:
    """Without user name, password and fragment, the query masked, and not too long."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    text = parts._replace(netloc=host, query="***" if parts.query else "", fragment="").geturl()
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
