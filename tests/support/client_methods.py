"""The client's methods, from our OpenAPI: python -m tests.support.client_methods writes both classes.

One method for each operation below /api/v3, named as it is: what its path names, then its body, then its query by name.
"""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from config import PROJECT_ROOT
from tests.support.client_shapes import SCHEMA, document, shapes, type_of

PACKAGE = PROJECT_ROOT / "enhanced_scheduler" / "client"
LEFT_OUT = ("/api/v3/session", "/api/v3/dev-tools")  # for browsers, and for older callers
REPEATABLE = {"cancel_execution", "preview_schedule", "preview_new_schedule", "preview_sync"}  # twice is once
CURSORS = ("cursor", "before")
INSTANTS = {"at"}  # described as text: it may be local
NOT_ASKED_FOR = {*CURSORS, "count"}
HEAD = '''"""{doc}

Generated from the OpenAPI document: python -m tests.support.client_methods
"""

from collections.abc import {iterator}, Mapping
from datetime import datetime
from typing import Any

from enhanced_scheduler.client import shapes
from enhanced_scheduler.client.transport import Call, Id, Transport, key, match, path

TIMEOUT_SECONDS = 30.0
RETRIES = 3


class {name}:
    """{about}"""

    def __init__(
        self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS, retries: int = RETRIES
    ) -> None:
        self._transport = Transport(url, token, timeout_seconds=timeout_seconds, retries=retries)
'''
BLOCKING_END = """
    def _send(self, call: Call) -> Any:
        return self._transport.send(call)

    def _items(self, url: str, query: Mapping[str, Any], cursor: str) -> Iterator[Any]:
        value = None
        while True:
            page = self._send(Call("GET", url, {**query, cursor: value}, may_repeat=True))
            yield from page["items"]
            if (value := page[f"next_{cursor}"]) is None:
                return
"""
ASYNC_END = """
    async def _send(self, call: Call) -> Any:
        return await asyncio.to_thread(self._transport.send, call)

    async def _items(self, url: str, query: Mapping[str, Any], cursor: str) -> AsyncIterator[Any]:
        value = None
        while True:
            page = await self._send(Call("GET", url, {**query, cursor: value}, may_repeat=True))
            for item in page["items"]:
                yield item
            if (value := page[f"next_{cursor}"]) is None:
                return
"""


@dataclass(frozen=True)
class Operation:
    """One of the document, as the client sees it."""

    method: str
    path: str
    described: Mapping[str, Any]
    schemas: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.described["operationId"])

    def parameters(self, place: str) -> list[Mapping[str, Any]]:
        return [each for each in self.described.get("parameters", ()) if each["in"] == place]

    @cached_property
    def headers(self) -> set[str]:
        return {each["name"].lower() for each in self.parameters("header")}

    @cached_property
    def query(self) -> dict[str, str]:
        """Name -> type."""
        return {
            each["name"]: _query_type(each) for each in self.parameters("query") if each["name"] not in NOT_ASKED_FOR
        }

    @cached_property
    def cursor(self) -> str | None:
        """The parameter by which it is read page after page."""
        return next((each["name"] for each in self.parameters("query") if each["name"] in CURSORS), None)

    @cached_property
    def body(self) -> tuple[str, str, bool] | None:
        """Name, schema, whether it has to be given."""
        if (request := self.described.get("requestBody")) is None:
            return None
        (schema,) = re.findall(rf"{SCHEMA}(\w+)", str(request))
        short = schema.removeprefix("New").removesuffix("In")
        name = "changes" if schema.endswith("Changes") else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", short).lower()
        return name, schema, bool(request.get("required"))

    @cached_property
    def answer(self) -> str | None:
        """Its schema. None: the answer has no body."""
        content = next(each.get("content", {}) for code, each in self.described["responses"].items() if code < "300")
        if "application/json" not in content:
            return None
        return str(content["application/json"]["schema"]["$ref"]).rpartition("/")[2]

    @property
    def item(self) -> str:
        return str(self.schemas[self.answer or ""]["properties"]["items"]["items"]["$ref"]).rpartition("/")[2]

    @property
    def doc(self) -> str:
        text = " ".join(self.described["description"].partition("Role:")[0].split()) or f"{self.described['summary']}."
        if self.cursor is not None:
            text = re.sub(r"^(?:A|One) page of (\w)", lambda found: found[1].upper(), text)
            text += " Reads page after page; `limit` is the size of one."
        indent = " " * len('        """')
        filled = textwrap.fill(text, 117, initial_indent=indent, subsequent_indent=" " * 8, break_on_hyphens=False)
        return filled.removeprefix(indent)


def operations(openapi: Mapping[str, Any]) -> Iterator[Operation]:
    for url, methods in openapi["paths"].items():
        for method, described in methods.items():
            streams = "text/event-stream" in str(described["responses"])
            if url.startswith("/api/v3/") and not url.startswith(LEFT_OUT) and not streams:
                yield Operation(method.upper(), url, described, openapi["components"]["schemas"])


def blocking(openapi: Mapping[str, Any]) -> str:
    head = HEAD.format(
        doc="The client for threads.", iterator="Iterator", name="Client", about="May be shared by threads."
    )
    return _formatted(head + "".join(_method(each, "") for each in operations(openapi)) + BLOCKING_END)


def asynchronous(openapi: Mapping[str, Any]) -> str:
    head = HEAD.format(
        doc="The client for asyncio.",
        iterator="AsyncIterator",
        name="AsyncClient",
        about="The same for asyncio: each call waits in a thread, so the event loop does not.",
    ).replace("from collections", "import asyncio\nfrom collections", 1)
    return _formatted(head + "".join(_method(each, "async ") for each in operations(openapi)) + ASYNC_END)


def _method(each: Operation, asynchronous: str) -> str:
    given = [f"{name}: {kind}" for name, kind in _positional(each)]
    named = [f"{name}: {kind} = None" for name, kind in each.query.items()]
    named += ["idempotency_key: str | None = None"] * ("idempotency-key" in each.headers)
    named += ["revision: int | None = None"] * ("if-match" in each.headers)
    words = ", ".join(["self", *given, *(["*", *named] if named else [])])
    query = "{" + ", ".join(f'"{name}": {name}' for name in each.query) + "}"
    if each.cursor is not None:
        kind = "AsyncIterator" if asynchronous else "Iterator"
        return f'''
    def {each.name}({words}) -> {kind}[shapes.{each.item}]:
        """{each.doc}"""
        return self._items({_url(each)}, {query}, "{each.cursor}")
'''
    call = [f'"{each.method}"', _url(each)]
    call += [query] * bool(each.query)
    call += [f"body={each.body[0]}"] if each.body else []
    call += ["headers=key(idempotency_key)"] * ("idempotency-key" in each.headers)
    call += ["headers=match(revision)"] * ("if-match" in each.headers)
    safe = each.method == "GET" or "idempotency-key" in each.headers or each.name in REPEATABLE
    call += ["may_repeat=True"] * safe
    send = f"{'await ' if asynchronous else ''}self._send(Call({', '.join(call)}))"
    lines = f"result: shapes.{each.answer} = {send}\n        return result" if each.answer else send
    return f'''
    {asynchronous}def {each.name}({words}) -> {f"shapes.{each.answer}" if each.answer else "None"}:
        """{each.doc}"""
        {lines}
'''


def _positional(each: Operation) -> Iterator[tuple[str, str]]:
    for parameter in each.parameters("path"):
        yield parameter["name"], "int" if parameter["schema"].get("type") == "integer" else "Id"
    if each.body is not None:
        name, schema, is_required = each.body
        yield name, f"shapes.{schema}" if is_required else f"shapes.{schema} | None = None"


def _url(each: Operation) -> str:
    named = re.findall(r"{(\w+)}", each.path)
    if not named:
        return f'"{each.path}"'
    return f'path("{re.sub(r"{.*?}", "{}", each.path)}", {", ".join(named)})'


def _query_type(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    if "date-time" in str(schema) or parameter["name"] in INSTANTS:
        return "datetime | str | None"
    if named := re.findall(rf"{SCHEMA}(\w+)", str(schema)):
        return f"shapes.{named[0]} | None"
    kind = type_of(schema)
    return kind if kind.endswith("None") else f"{kind} | None"


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "client.py", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    return done.stdout


def files(openapi: Mapping[str, Any]) -> dict[Path, str]:
    found = list(operations(openapi))
    roots = {name for each in found for name in (each.answer, each.body and each.body[1]) if name}
    roots |= {name for each in found for kind in each.query.values() for name in re.findall(r"shapes\.(\w+)", kind)}
    return {
        PACKAGE / "shapes.py": _formatted(shapes(openapi, roots)),
        PACKAGE / "blocking.py": blocking(openapi),
        PACKAGE / "asynchronous.py": asynchronous(openapi),
    }


if __name__ == "__main__":
    for file, text in files(document()).items():
        file.write_text(text)
