"""What API Gateway and Lambda hand to a function: the REST proxy event, the context, and which resource a path belongs to."""

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

FUNCTION = "cascade"
MEMORY_MB = 512
TIMEOUT_SECONDS = 29.0
"""API Gateway waits no longer for a function."""
ACCOUNT = "000000000000"
REGION = "us-east-1"
STAGE = "local"

Match = tuple[str, dict[str, str]]
"""A resource path and its path parameters, still percent-encoded."""


@dataclass
class _Node:
    resource: str | None = None
    literals: dict[str, "_Node"] = field(default_factory=dict)
    parameters: dict[str, "_Node"] = field(default_factory=dict)
    greedy: tuple[str, str] | None = None


class Resources:
    """Finds the resource of a path as API Gateway does: a literal before `{name}`, that before `{name+}`."""

    def __init__(self, resources: Iterable[str]) -> None:
        self._root = _Node()
        for resource in resources:
            self._add(resource)

    def _add(self, resource: str) -> None:
        node = self._root
        for part in _parts(resource):
            greedy = re.fullmatch(r"\{(.+)\+\}", part)
            if greedy:
                node.greedy = (greedy[1], resource)
                return
            children = node.parameters if part.startswith("{") else node.literals
            node = children.setdefault(part, _Node())
        node.resource = resource

    def match(self, path: str) -> Match | None:
        """The resource of a raw path, None where there is none. A trailing slash makes no difference."""
        if path != "/" and path.endswith("/"):
            path = path[:-1]
        return _match(self._root, _parts(path), 0)


def _parts(path: str) -> list[str]:
    return path.split("/")[1:] if path != "/" else []


def _match(node: _Node, parts: list[str], at: int) -> Match | None:
    if at == len(parts):
        return (node.resource, {}) if node.resource is not None else None
    part = parts[at]
    literal = node.literals.get(part)
    found = _match(literal, parts, at + 1) if literal else None
    for name, child in node.parameters.items() if part and not found else ():
        found = _match(child, parts, at + 1)
        if found:
            found[1][name[1:-1]] = part
            break
    if not found and node.greedy:
        name, resource = node.greedy
        return resource, {name: "/".join(parts[at:])}
    return found


@dataclass
class Context:
    """Lambda's context object, as far as a function can tell."""

    aws_request_id: str
    function_name: str = FUNCTION
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = str(MEMORY_MB)
    log_group_name: str = f"/aws/lambda/{FUNCTION}"
    log_stream_name: str = STAGE
    identity: None = None
    client_context: None = None
    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_SECONDS)

    @property
    def invoked_function_arn(self) -> str:
        """ARN of the function."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda would end the call."""
        return max(0, int((self.deadline - time.monotonic()) * 1000))


@dataclass
class HttpRequest:
    """An HTTP request as it came, but for its body."""

    method: str
    path: str
    """Percent-encoded."""
    query: str
    headers: list[tuple[str, str]]
    source_ip: str
    protocol: str = "HTTP/1.1"
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def expects_continue(self) -> bool:
        """Whether the client sends no body until it is told to."""
        return any(name.lower() == "expect" and value.lower() == "100-continue" for name, value in self.headers)

    @cached_property
    def all_values(self) -> dict[str, list[str]]:
        """Every value of each header, by lower-case name."""
        values: dict[str, list[str]] = {}
        for name, value in self.headers:
            values.setdefault(name.lower(), []).append(value)
        return values

    @cached_property
    def last_values(self) -> dict[str, str]:
        """The last value of each header, by lower-case name."""
        return {name: values[-1] for name, values in self.all_values.items()}


def rest_event(request: HttpRequest, match: Match, body: bytes) -> dict[str, Any]:
    """The event of Lambda's proxy integration with a REST API, payload format 1.0.

    One thing is unlike API Gateway's: a body is `bytes` as they came, not text or base64. Chalice takes both, and 64 MiB
    would be 150 more.
    """
    resource, parameters = match
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    headers = request.last_values
    return {
        "resource": resource,
        "path": request.path,
        "httpMethod": request.method,
        "headers": headers,
        "multiValueHeaders": request.all_values,
        "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
        "multiValueQueryStringParameters": query or None,
        "pathParameters": parameters or None,
        "stageVariables": None,
        "requestContext": _request_context(request, resource, headers),
        "body": body or None,
        "isBase64Encoded": False,
    }


def _request_context(request: HttpRequest, resource: str, headers: Mapping[str, str]) -> dict[str, Any]:
    now = time.time()
    return {
        "accountId": ACCOUNT,
        "apiId": STAGE,
        "domainName": headers.get("host", ""),
        "httpMethod": request.method,
        "identity": {"sourceIp": request.source_ip, "userAgent": headers.get("user-agent")},
        "path": request.path,
        "protocol": request.protocol,
        "requestId": request.id,
        "extendedRequestId": request.id,
        "requestTime": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
        "requestTimeEpoch": int(now * 1000),
        "resourceId": resource,
        "resourcePath": resource,
        "stage": STAGE,
    }


def scheduled_event(rule: str) -> dict[str, Any]:
    """What EventBridge hands to a scheduled function."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "region": REGION,
        "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{rule}"],
        "detail": {},
    }


def error_body(detail: str) -> bytes:
    """An error in the one shape that all errors of the API have."""
    return json.dumps({"detail": detail}).encode()
