"""/api/docs: the OpenAPI document as one page of plain HTML, without scripts or external resources."""

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import Any

from services.web.problems import PROBLEMS

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; } pre { overflow-x: auto; padding: .5rem; border: 1px solid #8886; }
code { overflow-wrap: anywhere; } summary { cursor: pointer; padding: .25rem 0; } summary code { font-weight: 600; }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .15rem .75rem .15rem 0; }
small { opacity: .75; }
"""
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_POLICY = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"
METHODS = ("get", "post", "put", "patch", "delete")


def docs_page(document: dict[str, Any]) -> str:
    body = "\n".join(_body(document))
    title = escape(document["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style><body>\n{body}\n</body></html>\n'
    )


def _body(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f"<h1>{escape(info['title'])} API</h1><p>{escape(info['description'])}</p>"
    yield '<p>OpenAPI: <a href="/api/openapi.json">openapi.json</a>. Errors: <a href="#problems">problems</a>.</p>'
    for tag in document["tags"]:
        operations = list(_operations(document, tag["name"]))
        if operations:
            yield f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}.</p>"
            yield from operations
    yield '<h2 id="problems">Problems</h2><table><tr><th>Status<th>Type<th>Meaning'
    for kind in PROBLEMS:
        yield f'<tr id="{kind.code}"><td>{kind.status}<td><code>{kind.code}</code><td>{escape(kind.meaning)}'
    yield "</table>"


def _operations(document: dict[str, Any], tag: str) -> Iterator[str]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if tag in item.get(method, {}).get("tags", ()):
                yield _operation(document, method, path, item[method])


def _operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<details><summary><code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])} "
        f"<small>{escape(operation['x-role'])}</small></summary>",
        *(f"<p>{escape(text)}</p>" for text in operation["description"].split("\n\n")),
    ]
    if parameters := operation.get("parameters"):
        rows = (
            f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{escape(each.get('description', ''))}"
            for each in parameters
        )
        parts.append(f"<table>{''.join(rows)}</table>")
    sent = operation.get("requestBody", {}).get("content", {})
    if example := _example(document, sent):
        parts.append(f"<p>Example request:</p><pre>{example}</pre>")
    for status, response in operation["responses"].items():
        if status < "300" and (example := _example(document, response.get("content", {}))):
            parts.append(f"<p>Example response ({status}):</p><pre>{example}</pre>")
    if problems := ", ".join(f"{status} {escape(each['description'])}" for status, each in _problems(operation)):
        parts.append(f"<p><small>Problems: {problems}.</small></p>")
    return "".join([*parts, "</details>"])


def _problems(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((status, each) for status, each in sorted(operation["responses"].items()) if "400" <= status < "600")


def _example(document: dict[str, Any], content: dict[str, Any]) -> str | None:
    """The first example, escaped for HTML."""
    if "text/plain" in content:
        return escape(content["text/plain"]["example"])
    schema = content.get("application/json", {}).get("schema", {})
    for option in (schema, *schema.get("anyOf", ())):
        name = option.get("$ref", "").rpartition("/")[2]
        if examples := document["components"]["schemas"].get(name, {}).get("examples"):
            return escape(json.dumps(examples[0], indent=2, ensure_ascii=False))
    return None
