"""The OpenAPI 3.1 document, made from the endpoint table and its models."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from chalicelib.http import Endpoint, json_text
from chalicelib.models import Error
from chalicelib.names import NAME_PATTERN

VERSION = "0.1.0"
DESCRIPTION = (
    "Where GPU simulators report: alive or not, what they print, which kernels finished in how many cycles, what they "
    'wrote. Every call is safe to retry. Every error is `{"detail": ...}`. A 503 carries `Retry-After`.'
)
_REFS = "#/components/schemas/{model}"
_COMMON = {
    401: "The bearer token is missing or wrong.",
    500: "A fault of the server; its log has the request id.",
    503: "Throttled or a passing fault below; send the same request again after `Retry-After` seconds.",
}
_PATH_PARAMETERS = {
    "sim_id": {"type": "string", "pattern": "^sim-[0-9a-f]{12}$", "examples": ["sim-6b4c91e71437"]},
    "run_id": {"type": "string", "pattern": "^run-[0-9a-f]{12}$", "examples": ["run-0f3a9c2b5d71"]},
    "name": {"type": "string", "pattern": NAME_PATTERN, "examples": ["kernel-stats.csv"]},
    "upload_id": {"type": "string", "examples": ["5f0c2a9e7b3d4816"]},
}


def _operation_id(endpoint: Endpoint) -> str:
    return endpoint.handler.__name__


def _schema(annotation: Any, mode: str, refs: dict[Any, Any]) -> dict[str, Any]:
    origin = getattr(annotation, "__origin__", None)
    if origin is list:
        return {"type": "array", "items": _schema(annotation.__args__[0], mode, refs)}
    return dict(refs[annotation, mode])


def _models(endpoints: Sequence[Endpoint]) -> list[tuple[Any, Any]]:
    wanted: list[tuple[Any, Any]] = [(Error, "serialization")]
    for endpoint in endpoints:
        if endpoint.body:
            wanted.append((endpoint.body, "validation"))
        if endpoint.returns:
            inner = endpoint.returns.__args__[0] if hasattr(endpoint.returns, "__args__") else endpoint.returns
            wanted.append((inner, "serialization"))
    return list(dict.fromkeys(wanted))


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    if endpoint.query:
        schema = endpoint.query.model_json_schema()
        for name, value in schema["properties"].items():
            value = {k: v for k, v in value.items() if k != "title"}
            description = value.pop("description", None)
            found.append(
                {"name": name, "in": "query", "schema": value} | ({"description": description} if description else {})
            )
    for name, description in endpoint.headers_in.items():
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
        found.append({"name": name, "in": "header", "description": description, "schema": schema})
    return found


def _responses(endpoint: Endpoint, refs: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    good: dict[str, Any] = {"description": "Done."}
    if endpoint.media:
        good["content"] = {endpoint.media: {"schema": {"type": "string", "format": "binary"}}}
    elif endpoint.returns:
        good["content"] = {"application/json": {"schema": _schema(endpoint.returns, "serialization", refs)}}
    responses[str(endpoint.status)] = good
    for status, text in endpoint.also.items():
        responses[str(status)] = {"description": text}
        if status == 302:
            responses["302"]["headers"] = {"Location": {"schema": {"type": "string", "format": "uri"}}}
    errors = dict(endpoint.errors)
    if endpoint.body:
        errors |= {413: errors.get(413, "The body is over 32 MiB after decompression."), 415: "Not application/json."}
    if endpoint.body or endpoint.query:
        errors.setdefault(422, "The request is malformed; `detail` lists each field.")
    if not endpoint.public:
        errors |= _COMMON
    else:
        errors |= {500: _COMMON[500]}
    for status in sorted(errors):
        entry: dict[str, Any] = {
            "description": errors[status],
            "content": {"application/json": {"schema": refs[Error, "serialization"]}},
        }
        if status == 401:
            entry["headers"] = {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}}}
        if status == 503:
            entry["headers"] = {"Retry-After": {"schema": {"type": "string", "pattern": "^[0-9]+$"}}}
        responses[str(status)] = entry
    return responses


def build(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document for exactly these endpoints."""
    refs, definitions = models_json_schema(_models(endpoints), ref_template=_REFS)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        operation: dict[str, Any] = {
            "operationId": _operation_id(endpoint),
            "summary": endpoint.summary,
            "responses": _responses(endpoint, refs),
        }
        parameters = _parameters(endpoint)
        if parameters:
            operation["parameters"] = parameters
        if endpoint.public:
            operation["security"] = []
        if endpoint.body:
            schema = _schema(endpoint.body, "validation", refs)
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if endpoint.raw_body:
            schema = {"type": "string", "format": "binary"}
            operation["requestBody"] = {"required": False, "content": {"*/*": {"schema": schema}}}
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cascade", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_cached: dict[int, str] = {}


def text(endpoints: Sequence[Endpoint]) -> str:
    """The document as JSON text, built once a process."""
    if id(endpoints) not in _cached:
        _cached[id(endpoints)] = json_text(build(endpoints))
    return _cached[id(endpoints)]
