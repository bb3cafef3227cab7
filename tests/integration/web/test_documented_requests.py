"""The curl commands of README.md and docs/*.md, sent to a real server in the order in which they stand there."""

import argparse

from tests.support.documentation import PAGES, blocks, shell_commands
from tests.support.web import Web

DOCUMENTED = "http://127.0.0.1:8000"


def curl() -> argparse.ArgumentParser:
    """The options of curl that the pages use."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("-X", dest="method", default="GET")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="body")
    parser.add_argument("url")
    return parser


def test_every_documented_request_is_answered(web: Web) -> None:
    shells = [shell_commands(block) for page in PAGES for block in blocks(page, "bash")]
    requests = [curl().parse_args(command[1:]) for shell in shells for command in shell if command[0] == "curl"]
    assert len(requests) == 6
    for request in requests:
        assert request.url.startswith(f"{DOCUMENTED}/api/v3/")
        headers = dict(line.split(": ", 1) for line in request.headers)
        assert headers.pop("Authorization") == "Bearer $TOKEN"
        path = request.url.removeprefix(DOCUMENTED)
        answer = web.ask(request.method, path, "operator", headers=headers, data=request.body)
        assert answer.ok, (request.url, answer.text)
