"""Which pages are worth a request, by their path."""

import pytest

from services.workflows.parsing.page_priorities import PageType, PriorityLevel, priority_of


@pytest.mark.parametrize(
    ("path", "page_type"),
    [
        ("/contact", PageType.CONTACT),
        ("/Contact-Us/", PageType.CONTACT),
        ("/contact_us.php", PageType.CONTACT),
        ("/en/contact", PageType.CONTACT),
        ("/contact/berlin", PageType.CONTACT),
        ("/kontakt.html", PageType.CONTACT),
        ("/about", PageType.ABOUT),
        ("/about/team", PageType.ABOUT),
        ("/%C3%BCber-uns", PageType.ABOUT),
        ("/careers", PageType.CAREER),
        ("/impressum", PageType.LEGAL),
        ("/privacy-policy", PageType.LEGAL),
    ],
)
def test_pages_that_name_somebody_go_first(path: str, page_type: PageType) -> None:
    found = priority_of(f"https://a.example{path}")
    assert (found.page_type, found.level) == (page_type, PriorityLevel.HIGH)
    assert found.queue_priority > 0


@pytest.mark.parametrize(
    ("path", "page_type"),
    [
        ("/brochure.pdf", PageType.FILE),
        ("/contact.PDF", PageType.FILE),
        ("/feed.xml", PageType.FILE),
        ("/blog/2026/05/a-post", PageType.BLOG),
        ("/en/news/2026/a-post", PageType.BLOG),
        ("/about/history/1950", PageType.ABOUT),
        ("/services/roofs/repair", PageType.SERVICE),
        ("/blog/2026/contact", PageType.BLOG),
    ],
)
def test_files_and_deep_pages_are_not_worth_a_request(path: str, page_type: PageType) -> None:
    found = priority_of(f"https://a.example{path}")
    assert (found.page_type, found.level, found.queue_priority) == (page_type, PriorityLevel.FILTERED, 0)


@pytest.mark.parametrize(
    ("path", "page_type", "depth"),
    [
        ("/", PageType.HOME, 0),
        ("", PageType.HOME, 0),
        ("/menu", PageType.OTHER, 1),
        ("/blog", PageType.BLOG, 1),
        ("/blog/a-post", PageType.BLOG, 2),
        ("/services/roofs", PageType.SERVICE, 2),
        ("/contactless-payment", PageType.OTHER, 1),
        ("/contact/a/b/c", PageType.CONTACT, 4),
    ],
)
def test_the_rest_waits_its_turn(path: str, page_type: PageType, depth: int) -> None:
    found = priority_of(f"https://a.example{path}?about=1")
    assert (found.page_type, found.level, found.path_depth) == (page_type, PriorityLevel.NORMAL, depth)
    assert found.queue_priority == 0


def test_a_contact_page_goes_before_all_others() -> None:
    contact, about = priority_of("https://a.example/contact"), priority_of("https://a.example/about")
    assert contact.queue_priority > about.queue_priority
