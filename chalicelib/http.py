"""The edge of the service: who may call, what a body must be, and how every answer and error looks."""

import gzip
import io
import json
import os
import re
import reprlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from chalice.app import Chalice
from chalice.app import Request as ChaliceRequest
from chalice.app import Response as ChaliceResponse
from pydantic import BaseModel, ValidationError

from chalicelib import blobs, metrics, settings, tokens
from chalicelib.errors import Busy, CascadeError, TooLarge, Unprocessable
from chalicelib.log import logger

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
JSON_TYPES = ("application/json", "application/gzip", "application/x-gzip")

_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Malformed(Exception):
    """A request that is wrong in itself: 422 with one entry a field."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__("malformed request")
        self.errors = errors


def field_error(kind: str, loc: list[str | int], msg: str, value: Any) -> dict[str, Any]:
    """One entry of a 422's `detail`, shaped as pydantic shapes its own."""
    return {"type": kind, "loc": loc, "msg": msg, "input": preview(value)}


def preview(value: Any) -> Any:
    """A short JSON-safe stand-in for what was sent: a body of megabytes must not come back in its error."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return value if len(value) <= 100 else value[:100] + "…"
    short = _short.repr(value)
    if "..." in short:
        return short
    try:
        json_text(value)
    except ValueError:
        return short  # 1e999 is JSON, and infinite once parsed
    return value


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


# Who may call.


def _tokens() -> list[bytes]:
    text = os.environ.get("CASCADE_TOKEN")
    secret = os.environ.get("CASCADE_TOKEN_SECRET")
    if text is None and secret:
        # Cached for five minutes: a rotation needs no deployment, and a heartbeat no call.
        from aws_lambda_powertools.utilities import parameters

        text = str(parameters.get_secret(secret, max_age=300))
    return tokens.valid(text or "")


def authorized(headers: Mapping[str, str]) -> bool:
    """Whether `headers` (any case) carry a valid bearer token."""
    value = next((v for k, v in headers.items() if k.lower() == "authorization"), "")
    return tokens.matches(value, _tokens())


# Answers.


class Response(ChaliceResponse):
    """An answer whose body is text, bytes or an iterator of bytes, sent as it is.

    Bytes and iterators are for a server in front that delivers them itself (`settings.direct_downloads`): API Gateway
    would turn bytes into base64 and back, by the request's Accept header.
    """

    def __init__(self, body: Any, headers: Mapping[str, str], status: int) -> None:
        super().__init__(body, dict(headers), status)

    def to_dict(self, binary_types: list[str] | None = None) -> dict[str, Any]:
        """As Lambda's proxy integration wants it."""
        return {
            "statusCode": self.status_code,
            "headers": dict(self.headers),
            "multiValueHeaders": {},
            "body": self.body,
            "isBase64Encoded": False,
        }


SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def json_text(value: Any) -> str:
    """JSON as this API sends it: UTF-8, no blanks, never NaN."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_response(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer, or a redirect to it when it is too large to go inline. `value` may be JSON text already."""
    text = value if isinstance(value, str) else json_text(value)
    if not settings.direct_downloads() and len(text) > settings.RESPONSE_MAX_BYTES // 4:
        body = text.encode()
        if len(body) > settings.RESPONSE_MAX_BYTES:
            return redirect_to(iter([body]), "application/json", "answer.json")
    return Response(text, {"Content-Type": "application/json", **SAFE_HEADERS, **(headers or {})}, status)


def error_response(status: int, detail: Any, headers: Mapping[str, str] | None = None) -> Response:
    """An error in the one shape all errors have."""
    return json_response(status, {"detail": detail}, headers)


def unauthorized() -> Response:
    """401, whatever was wrong."""
    return error_response(401, tokens.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})


def no_content() -> Response:
    """204."""
    return Response("", {**SAFE_HEADERS}, 204)


def redirect_to(parts: Iterator[bytes], content_type: str, filename: str) -> Response:
    """Store a large answer for a day and send the caller to a short-lived URL of it."""
    key, version = blobs.put_stream("exports/", parts, content_type)
    return redirect(blobs.presigned(key, version, filename, content_type))


def redirect(url: str) -> Response:
    """302 to an object-store URL; no bearer token is needed or wanted there."""
    return Response("", {"Location": url, **SAFE_HEADERS}, 302)


def stream(parts: Iterator[bytes], content_type: str, filename: str) -> Response:
    """Bytes of unknown length: as they come where the server delivers them itself, else inline or by redirect."""
    headers = {
        "Content-Type": content_type,
        "Content-Disposition": f'attachment; filename="{quote(filename)}"',
        **SAFE_HEADERS,
    }
    if settings.direct_downloads():
        # The first part is made here: what fails before it is an answer still, a 404 perhaps.
        return Response(_after(next(parts, b""), parts), headers, 200)
    head: list[bytes] = []
    size = 0
    for part in parts:
        head.append(part)
        size += len(part)
        if size > settings.RESPONSE_MAX_BYTES:

            def rest() -> Iterator[bytes]:
                yield from head
                yield from parts

            return redirect_to(rest(), content_type, filename)
    return Response(b"".join(head).decode(), headers, 200)


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


# Requests.


@dataclass
class Request:
    """What a handler may look at."""

    path: dict[str, str]
    headers: Mapping[str, str]
    body: Any = None
    query: Any = None
    raw: bytes = b""


@dataclass
class Endpoint:
    """One call of the API: how it is reached, what it takes and gives. Routes and OpenAPI are both made from it."""

    method: str
    path: str
    handler: Callable[[Request], Any]
    summary: str
    status: int = 200
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    returns: Any = None
    raw_body: bool = False
    public: bool = False
    errors: dict[int, str] = field(default_factory=dict)
    media: str | None = None
    """Content type of the answer when it is not JSON."""
    headers_in: dict[str, str] = field(default_factory=dict)
    also: dict[int, str] = field(default_factory=dict)
    """Other answers that are no errors, such as 204 or 302."""


def path_values(raw: Mapping[str, str] | None) -> dict[str, str]:
    """Path parameters, percent-decoded once (API Gateway hands them on encoded). Invalid UTF-8 becomes U+FFFD."""
    return {k: unquote(v, errors="replace") for k, v in (raw or {}).items()}


def inflate(raw: bytes) -> bytes:
    """The body, decompressed if it is gzip.

    Told by its first bytes, not by a header: API Gateway inflates `Content-Encoding: gzip` and may leave the header on,
    and JSON never starts like that.
    """
    if raw[:2] != b"\x1f\x8b":
        body = raw
    else:
        try:
            body = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(settings.JSON_MAX_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Malformed([field_error("gzip_invalid", ["body"], f"not valid gzip: {error}", None)]) from None
    if len(body) > settings.JSON_MAX_BYTES:
        raise TooLarge(f"the body is over the {settings.JSON_MAX_BYTES // settings.MIB} MiB limit of a JSON body")
    return body


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(body: bytes) -> Any:
    """The JSON value of `body`. Raises Malformed; lone surrogates in strings become U+FFFD, which can be stored."""
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_refuse_constant)
        if _LONE_SURROGATE.search(text):
            value = _without_lone_surrogates(value)
    except UnicodeDecodeError as error:
        raise Malformed([field_error("json_invalid", ["body"], f"not valid UTF-8: {error.reason}", None)]) from None
    except json.JSONDecodeError as error:
        raise Malformed(
            [field_error("json_invalid", ["body", error.pos], f"not valid JSON: {error.msg}", None)]
        ) from None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, NaN, or nesting deeper than any model here.
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(";")[0]
        raise Malformed([field_error("json_invalid", ["body"], f"not valid JSON: {reason}", None)]) from None
    if not isinstance(value, dict):
        raise Malformed([field_error("model_type", ["body"], "the body must be a JSON object", value)])
    return value


def _without_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_without_lone_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_lone_surrogates(k): _without_lone_surrogates(v) for k, v in value.items()}
    return value


def validate(model: type[BaseModel], value: Any, where: str) -> Any:
    """`value` as `model`; `where` is `body` or `query`. Raises Malformed."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Malformed(
            [
                field_error(e["type"], [where, *e["loc"]], e["msg"], e["input"])
                for e in error.errors(include_url=False, include_context=False)[:100]
            ]
        ) from None


def _content_type(headers: Mapping[str, str]) -> str:
    return (headers.get("content-type") or "application/json").partition(";")[0].strip().lower()


def _raw_body(request: ChaliceRequest) -> bytes:
    body = request.raw_body  # bytes in every case, whatever its annotation says
    return body if isinstance(body, bytes) else body.encode()


DAMAGED = (
    "send Content-Type: application/octet-stream and no Content-Encoding: else the bytes are changed on the way here"
)


def _changed_on_the_way(request: ChaliceRequest, body: bytes) -> bool:
    """Whether API Gateway handed on other bytes than it got: it inflates gzip, and puts U+FFFD for what is not UTF-8."""
    event = request.to_original_event()
    if not isinstance(event["body"], str):
        return False  # a server in front that hands on bytes
    if (request.headers.get("content-encoding") or "identity").strip().lower() != "identity":
        return True
    if event["isBase64Encoded"]:
        return False
    length = request.headers.get("content-length", "")
    return len(body) != int(length) if length.isdecimal() else "\ufffd".encode() in body


def read(endpoint: Endpoint, request: ChaliceRequest) -> Request | Response:
    """What the handler gets, or the answer that ends it: 415 here, 413 and 422 as exceptions."""
    taken = Request(path=path_values(request.uri_params), headers=request.headers)
    if endpoint.query:
        # The last of repeated parameters counts.
        given = {k: request.query_params.getlist(k)[-1] for k in request.query_params} if request.query_params else {}
        taken.query = validate(endpoint.query, given, "query")
    if endpoint.raw_body:
        taken.raw = _raw_body(request)
        if _changed_on_the_way(request, taken.raw):
            return error_response(415, DAMAGED)
    elif endpoint.body:
        if _content_type(request.headers) not in JSON_TYPES:
            return error_response(415, f"send application/json, not {preview(request.headers['content-type'])}")
        encoding = (request.headers.get("content-encoding") or "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip"):
            return error_response(415, f"content encoding {preview(encoding)} is not taken, send gzip or none")
        taken.raw = inflate(_raw_body(request))
        value = parse_json(taken.raw)
        taken.body = validate(endpoint.body, value, "body")
    return taken


def answer(endpoint: Endpoint, request: ChaliceRequest) -> Response:
    """Run one call: read, handle, and turn the result or whatever was raised into the answer."""
    try:
        taken = read(endpoint, request)
        if isinstance(taken, Response):
            return taken
        result = endpoint.handler(taken)
        if isinstance(result, Response):
            return result
        if result is None:
            return no_content()
        if isinstance(result, BaseModel):
            return json_response(endpoint.status, result.model_dump_json())
        if isinstance(result, list):
            return json_response(endpoint.status, [model.model_dump() for model in result])
        return json_response(endpoint.status, result)
    except Malformed as error:
        return error_response(422, error.errors)
    except Busy as error:
        return error_response(503, error.detail, {"Retry-After": str(error.retry_after)})
    except CascadeError as error:
        return error_response(error.status, error.detail)
    except Exception:  # noqa: BLE001
        return unhandled(request)
    finally:
        metrics.flush()


def unhandled(request: ChaliceRequest) -> Response:
    """500 for the exception being handled: the caller learns nothing of the inside, the log all but the token."""
    request_id = request.context.get("requestId")
    logger().exception("unhandled", route=request.path, method=request.method, request_id=request_id)
    return error_response(500, "internal error")


# What handlers take from a request beside its models.


def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key header. Raises Unprocessable when it is not 1 to 255 printable ASCII characters."""
    key = request.headers.get("idempotency-key")
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise Unprocessable("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return key


def prefers_text(request: Request) -> bool:
    """Whether the Accept header asks for text/plain and not for JSON."""
    accept = (request.headers.get("accept") or "").lower()
    return "text/plain" in accept and "application/json" not in accept


def attachment(body: bytes, content_type: str, filename: str) -> Response:
    """Stored bytes, never shown inline by a browser whatever they are."""
    headers = {
        "Content-Type": content_type,
        "Content-Disposition": f'attachment; filename="{filename}"',
        "Content-Security-Policy": "sandbox",
        **SAFE_HEADERS,
    }
    return Response(body, headers, 200)


# Mounting.


def mount(app: Chalice, endpoints: Sequence[Endpoint]) -> None:
    """Give the Chalice app one route a path, for every method, so that each answer is of this module's making."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    def route(path: str, methods: dict[str, Endpoint]) -> None:
        def view(**_: str) -> Response:
            request = app.current_request
            assert request is not None, "set by chalice before a view runs"  # noqa: S101
            endpoint = methods.get(request.method)
            if endpoint is None:
                allow = ", ".join(m for m in METHODS if m in methods)
                return error_response(405, f"{request.method} is not allowed here", {"Allow": allow})
            return answer(endpoint, request)

        name = re.sub(r"\W+", "_", path).strip("_")
        app.route(path, methods=list(METHODS), name=name, content_types=[])(view)

    for path, methods in by_path.items():
        route(path, methods)
    public = {path for path, methods in by_path.items() if all(e.public for e in methods.values())}

    def guard(request: ChaliceRequest, get_response: Callable[[ChaliceRequest], Response]) -> Response:
        try:
            if request.path not in public and not authorized(request.headers):
                return unauthorized()
        except Exception:  # noqa: BLE001
            return unhandled(request)  # the secret cannot be read: nobody is let in
        if request.path not in by_path:
            return error_response(404, "not found")
        return get_response(request)

    app.register_middleware(guard, "http")
