"""The OpenAPI 3.1 document, generated from the table of endpoints and their types."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tools.pages import answers
from tools.pages.reports import REPORTS
from twinlog import __version__
from twinlog.control.web.api.endpoints import ENDPOINTS, ROOT, STREAM, STREAM_SUMMARY, Endpoint
from twinlog.control.web.problem import PROBLEM

FILE: Final = "openapi.json"
_REF: Final = "#/components/schemas/{model}"
_JSON: Final = "application/json"


def render() -> str:
    """Return the document as JSON text."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def document() -> dict[str, Any]:
    """Return the document as a dict."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(answers.Problem, "serialization")]
    for one in ENDPOINTS:
        models.append((REPORTS[one.answer], "serialization"))
        if one.body is not None:
            models.append((one.body, "validation"))
    unique = list(dict.fromkeys(models))
    _, schemas = models_json_schema(unique, by_alias=True, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    paths[STREAM] = {"get": _stream()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Twinlog",
            "version": __version__,
            "description": "Flows of a Twinlog process: their state, and commands to them.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    answer = REPORTS[one.answer]
    found: dict[str, Any] = {
        "summary": one.summary,
        "operationId": _id(one),
        "parameters": [*_of_path(one.path), *_of_query(one.query)],
        "responses": {
            "200": {"description": _description(answer), "content": _content(answer)},
            "default": _PROBLEM,
        },
    }
    if one.body is not None:
        found["requestBody"] = {"required": True, "content": _content(one.body)}
    return found


def _id(one: Endpoint) -> str:
    """Return the operation's ID, for example `get_flow_topics` for `/flows/{flow}/topics`.
    Generated clients use it as the name of a function.
    """
    path = re.sub(r"\w+/\{(\w+)\}", r"\1", one.path.removeprefix(f"{ROOT}/"))
    return "_".join([one.method.lower(), *path.split("/")])


def _description(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _content(model: type[BaseModel], kind: str = _JSON) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": _REF.format(model=model.__name__)}}}


_PROBLEM: Final = {
    "description": _description(answers.Problem),
    "content": _content(answers.Problem, PROBLEM),
}


def _of_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _of_query(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = query.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    out = []
    for name, one in schema["properties"].items():
        # in a query, null means that the parameter is absent
        kinds = [each for each in one.get("anyOf", [one]) if each.get("type") != "null"]
        (kind,) = [
            definitions[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
            for each in kinds
        ]
        kept = {key: value for key, value in kind.items() if key not in ("title", "description")}
        parameter: dict[str, Any] = {"name": name, "in": "query", "schema": kept}
        if name in schema.get("required", ()):
            parameter["required"] = True
        if "description" in one:
            parameter["description"] = " ".join(one["description"].split())
        out.append(parameter)
    return out


def _stream() -> dict[str, Any]:
    return {
        "summary": STREAM_SUMMARY,
        "operationId": "get_stream",
        "parameters": [],
        "responses": {
            "200": {
                "description": "An endless stream.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            "default": _PROBLEM,
        },
    }
