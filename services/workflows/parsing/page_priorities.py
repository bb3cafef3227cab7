"""The priority of a site's pages for contacts, by their path alone. Pure."""

import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from urllib.parse import unquote, urlsplit

DEEP = 3  # segments of a path: /blog/2024/a-post


class PageType(StrEnum):
    HOME = "home"
    CONTACT = "contact"
    ABOUT = "about"
    CAREER = "career"
    LEGAL = "legal"
    BLOG = "blog"
    SERVICE = "service"
    FILE = "file"
    OTHER = "other"


class PriorityLevel(IntEnum):
    HIGH = 1
    NORMAL = 2
    FILTERED = 3  # not worth a request


@dataclass(frozen=True, slots=True)
class PagePriority:
    page_type: PageType
    level: PriorityLevel
    path_depth: int

    @property
    def queue_priority(self) -> int:
        """A point is worth ten minutes of waiting: contact pages of new sites precede other pages of old ones."""
        return _POINTS.get(self.page_type, 0) if self.level is PriorityLevel.HIGH else 0


_POINTS = {PageType.CONTACT: 12, PageType.LEGAL: 6, PageType.ABOUT: 6, PageType.CAREER: 3}

_FILE = re.compile(
    r"\.(pdf|docx?|xlsx?|pptx?|od[tsp]|csv|txt|rtf|xml|json|rss|atom|ics|vcf|css|js|map|zip|gz|rar|7z|tar|exe|dmg|apk"
    r"|jpe?g|png|gif|webp|avif|svg|ico|bmp|tiff?|mp[34]|m4[av]|mov|avi|webm|wav|ogg|woff2?|ttf|eot)$",
    re.IGNORECASE,
)

# Whole path segments, hyphens as blanks: `contact-us` is a contact page, `contactless-payment` is not.
_WORDS: tuple[tuple[PageType, str], ...] = (
    (
        PageType.CONTACT,
        "contact|contacts|contact us|contactus|get in touch|reach us|kontakt|kontakte|contacto|contactos|contatti"
        "|contato|nous contacter|contactez nous|yhteystiedot|kapcsolat|find us|locations|standorte",
    ),
    (
        PageType.LEGAL,
        "impressum|imprint|legal|legal notice|mentions legales|aviso legal|note legali|privacy|privacy policy"
        "|datenschutz|datenschutzerklaerung|terms|terms of service|terms and conditions|agb|disclaimer",
    ),
    (
        PageType.CAREER,
        "career|careers|jobs|job openings|karriere|stellenangebote|work with us|join us|vacancies|hiring|emploi|empleo",
    ),
    (
        PageType.ABOUT,
        "about|about us|aboutus|ueber uns|uber uns|über uns|team|our team|the team|meet the team|staff|people"
        "|who we are|our story|company|unternehmen|a propos|qui sommes nous|chi siamo|sobre nosotros|quienes somos",
    ),
    (PageType.BLOG, "blog|news|posts|articles|artikel|aktuelles|magazine|press|category|tag|author|archive|events"),
    (PageType.SERVICE, "service|services|leistungen|products|product|produkte|shop|solutions|portfolio|projects"),
)
_TYPES = {word: kind for kind, words in _WORDS for word in words.split("|")}
_HIGH = frozenset({PageType.CONTACT, PageType.ABOUT, PageType.CAREER, PageType.LEGAL})
_SHALLOW_ONLY = frozenset({PageType.BLOG, PageType.ABOUT, PageType.SERVICE})


def priority_of(url: str) -> PagePriority:
    path = urlsplit(url).path
    segments = [segment for segment in path.split("/") if segment]
    depth = len(segments)
    if not segments:
        return PagePriority(PageType.HOME, PriorityLevel.NORMAL, 0)
    if _FILE.search(path):
        return PagePriority(PageType.FILE, PriorityLevel.FILTERED, depth)
    kinds = [_type_of(segment) for segment in segments]
    section = next((kind for kind in kinds if kind in _SHALLOW_ONLY), None)
    if section is not None and depth - kinds.index(section) >= DEEP:
        return PagePriority(section, PriorityLevel.FILTERED, depth)
    for kind in (kinds[-1], kinds[0] if depth < DEEP else PageType.OTHER):
        if kind in _HIGH:
            return PagePriority(kind, PriorityLevel.HIGH, depth)
    known = section or next((kind for kind in kinds if kind is not PageType.OTHER), PageType.OTHER)
    return PagePriority(known, PriorityLevel.NORMAL, depth)


def _type_of(segment: str) -> PageType:
    """`Contact-Us.html` -> contact."""
    bare = re.sub(r"\.(html?|php|aspx?|jsp|cfm)$", "", unquote(segment).lower())
    words = re.sub(r"[\s_+-]+", " ", bare).strip()
    return _TYPES.get(words, PageType.OTHER)
