"""manage.py places, businesses, domains, sitemap-files, pages: as operators meet them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import manage
from config import get_settings
from database.connection import DatabaseConnection
from tests.support.pipeline_stand_ins import PipelineWorld, google_says
from tests.support.places import query

Cli = Callable[..., Result]

CSV = """place_id,name,address,lat,lng,rating,colour
p1,Elmwood Bakery,"123 Elmwood Ave, Buffalo",42.9,-78.9,4.6,blue
p2,Nowhere,,,,,
,No id,,,,,
p3,Bad rating,,,,much,
p4,Too far north,,91,0,,
p1,Elmwood again,,,,,

p5,"Line
break",,,,,
"""


@pytest.fixture
def cli(own_process: dict[str, str]) -> Cli:
    def run(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(manage.app, list(arguments), input=answer)

    return run


@pytest.fixture
def world(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[PipelineWorld]:
    with PipelineWorld() as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()
        monkeypatch.setattr("services.workflows.places.google_details.TOKEN_SECONDS", 0.0)
        yield world


def staged(db: DatabaseConnection, columns: str = "place_id, name, status") -> list[Any]:
    return query(db, f"SELECT {columns} FROM places_staging ORDER BY place_id")


# --- a search ---


def test_a_search_tells_what_it_staged_and_what_it_cost(cli: Cli, world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page_size = 1
    world.search("dentists in Berlin", "p1", "p2")
    tried = cli("places", "search", "dentists in Berlin", "--dry-run")
    assert (tried.exit_code, staged(db)) == (0, [])
    assert "2 found: 2 would be staged, 0 already known; used 2 requests of the quota" in tried.stdout
    found = cli("places", "search", "dentists in Berlin", "--limit", "1")
    assert "1 found: 1 staged as New, 0 already known; used 1 request of the quota" in found.stdout
    assert "there may be more: the limit of 1 places" in found.stderr
    again = json.loads(cli("places", "search", "dentists in Berlin", "--json").stdout)
    assert (again["created"], again["known"], [place["created"] for place in again["places"]]) == (1, 1, [False, True])
    assert staged(db) == [("p1", "Bakery p1", "New"), ("p2", "Bakery p2", "New")]


def test_a_search_that_fails_is_one_line(cli: Cli, world: PipelineWorld) -> None:
    world.google = google_says("OVER_QUERY_LIMIT")
    failed = cli("places", "search", "dentists in Berlin")
    assert (failed.exit_code, failed.stderr) == (1, "the search failed: Google says OVER_QUERY_LIMIT\n")


def test_a_search_without_a_key_names_the_setting(cli: Cli) -> None:
    failed = cli("places", "search", "dentists in Berlin")
    assert (failed.exit_code, "GOOGLE_MAPS_API_KEY is not set" in failed.stderr) == (1, True)


# --- a file ---


def test_a_file_s_good_lines_are_staged_and_each_bad_one_is_told(
    cli: Cli, db: DatabaseConnection, tmp_path: Path
) -> None:
    file = tmp_path / "places.csv"
    file.write_text(CSV, encoding="utf-8")
    tried = cli("places", "import", str(file), "--dry-run")
    assert (tried.exit_code, staged(db)) == (2, [])
    assert "would be: 3 new, 1 already known, 3 refused" in tried.stdout
    done = cli("places", "import", str(file))
    assert (done.exit_code, done.stdout) == (2, "3 new, 1 already known, 3 refused\n")
    assert done.stderr.splitlines() == [
        "! line 4: place_id: is required",
        "! line 5: rating: input should be a valid number, unable to parse string as a number",
        "! line 6: latitude: input should be less than or equal to 90",
        "unknown columns, ignored: colour",
    ]
    assert staged(db) == [("p1", "Elmwood Bakery", "New"), ("p2", "Nowhere", "New"), ("p5", "Line\nbreak", "New")]
    assert staged(db, "formatted_address, latitude, longitude, rating")[0] == (
        "123 Elmwood Ave, Buffalo", 42.9, -78.9, 4.6,
    )  # fmt: skip
    assert "0 new, 4 already known, 3 refused" in cli("places", "import", str(file)).stdout


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("places.json", '[{"place_id": "p1", "lat": 42.9}, {"place_id": "p2"}]'),
        ("places.json", '\ufeff{"places": [{"place_id": "p1", "latitude": 42.9}, {"place_id": "p2"}]}'),
        ("places.jsonl", '{"place_id": "p1", "latitude": 42.9}\n\n{"place_id": "p2"}\n'),
        ("places.csv", "Place ID;Lat\np1;42.9\np2;\n"),
        ("places.tsv", "place_id\tlatitude\r\np1\t42.9\r\np2\t\r\n"),
    ],
)
def test_a_file_may_be_written_in_several_ways(
    cli: Cli, db: DatabaseConnection, tmp_path: Path, name: str, content: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode())
    assert json.loads(cli("places", "import", str(file), "--json").stdout) == {
        "dry_run": False, "created": 2, "known": 0, "refused": 0, "ignored": [], "problems": [],
    }  # fmt: skip
    assert staged(db, "place_id, latitude") == [("p1", 42.9), ("p2", None)]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("places.txt", b"", "give --format csv|json|jsonl"),
        ("places.csv", b"", "needs a header with the column place_id"),
        ("places.csv", b"name\nx\n", "needs a header with the column place_id"),
        ("places.csv", b"place_id\n\xff\n", "is not UTF-8 text"),
        ("places.json", b"{", "is not JSON"),
        ("places.json", b'{"data": 1}', "must be a list of places"),
        ("places.json", b"[" * 100_000, "is nested too deeply"),
        ("places.json", b'[{"place_id": "p1", "place_id": "p2"}]', "duplicate key 'place_id'"),
    ],
)
def test_a_file_that_is_none_is_one_line(cli: Cli, tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    refused = cli("places", "import", str(file))
    assert refused.exit_code == 2
    assert problem in refused.stderr


def test_bad_lines_of_a_stream_do_not_end_it(cli: Cli, db: DatabaseConnection) -> None:
    lines = '{"place_id": "p1"}\nnonsense\n5\n{"place_id": "p2"}\n{"place_id": "p3", "place_id": "p4"}\n'
    done = cli("places", "import", "-", "--format", "jsonl", answer=lines)
    assert (done.exit_code, len(staged(db))) == (2, 2)
    assert "! line 2: is not JSON" in done.stderr
    assert "! line 3: place: input should be a valid dictionary" in done.stderr
    assert "! line 5: duplicate key 'place_id'" in done.stderr


# --- lists ---


@pytest.fixture
def rows(db: DatabaseConnection) -> None:
    query(db, "INSERT INTO places_staging (place_id, name) SELECT 'p' || n, 'Bakery' FROM generate_series(1, 3) AS n")
    query(db, "INSERT INTO local_businesses (place_id, business_name) VALUES ('p1', 'Bakery'), ('p2', 'Bank')")
    query(db, "INSERT INTO domains (domain) VALUES ('bakery.example'), ('bank.example')")
    for table in ("sitemap_files", "pages"):
        query(db, f"INSERT INTO {table} (domain_id, url) SELECT id, 'https://' || domain || '/' FROM domains")
    query(db, "UPDATE domains SET status = 'error' WHERE domain = 'bakery.example'")
    query(db, "UPDATE pages SET contact_scrape_status = 'ContactFound' WHERE url = 'https://bakery.example/'")


@pytest.mark.parametrize(
    ("command", "option", "shown"),
    [
        (["places"], ["--search", "p3"], "p3"),
        (["businesses"], ["--search", "bakery"], "Bakery"),
        (["domains"], ["--search", "bakery"], "bakery.example"),
        (["sitemap-files"], ["--domain", "bakery.example"], "https://bakery.example/"),
        (["pages"], ["--domain", "bakery.example"], "https://bakery.example/"),
        (["domains"], ["--metadata", "error"], "bakery.example"),
        (["pages"], ["--contacts", "ContactFound"], "https://bakery.example/"),
    ],
)
def test_rows_are_listed_with_their_ids_filters_and_pages(
    cli: Cli, rows: None, command: list[str], option: list[str], shown: str
) -> None:
    (item,) = json.loads(cli(*command, *option, "--json").stdout)["items"]
    table = cli(*command, *option).stdout
    assert shown in table
    assert str(item["id"]) in table
    first = json.loads(cli(*command, "--limit", "1", "--json").stdout)
    second = json.loads(cli(*command, "--limit", "1", "--cursor", first["next_cursor"], "--json").stdout)
    assert first["items"][0]["id"] != second["items"][0]["id"]
    assert "next page: --cursor" in cli(*command, "--limit", "1").stdout
    assert "match" in cli(*command, "--search", "nothing like this").stdout
    assert len(json.loads(cli(*command, "--status", "new", "--json").stdout)["items"]) >= 2
    strange = cli(*command, "--queue-status", "fine")
    assert (strange.exit_code, "must be one of " in strange.stderr) == (2, True)
