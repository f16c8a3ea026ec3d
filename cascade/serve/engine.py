"""The AWS of one machine: DynamoDB and S3 inside this process, on a folder of this disk.

It is ministack, which is an AWS in memory, made durable: what is answered is on disk and survives the death of the process
at any moment. A boto3 client reaches it by `connect`, without a socket: a port without authentication would let in anybody
on a shared workstation.

The folder holds
    format              version of what is in it
    lock                held while an engine runs, with its process id
    table.sqlite        DynamoDB items
    bucket.sqlite       what is known of S3 objects
    objects/            their bytes, a file a version
    files/<sim>/<name>  stored files under their own names
"""

import asyncio
import base64
import fcntl
import gc
import json
import logging
import os
import re
import socket
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import botocore
import uvicorn
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpchecksum import AwsChunkedWrapper
from ministack.services import dynamodb, s3

from cascade.serve import resources
from cascade.serve.durable import Answer
from cascade.serve.object_store import ObjectStore
from cascade.serve.published import Published
from cascade.serve.table_store import TableStore

logger = logging.getLogger(__name__)

FORMAT = 1
REGION = "us-east-1"
YOUNG_OBJECTS = 10_000
"""So many more objects there are between two looks of the collector, not 700: one answer alone has more, and each look at what
is about to be gone anyway brings the next look at the whole heap nearer."""
COMPLAINT_SECONDS = 10.0
"""The same failure of the disk is logged once in so long."""

Handler = Callable[..., AWSResponse]


class EngineError(Exception):
    """The engine cannot run on this folder; the message says why, for a person."""


class Engine:
    """DynamoDB with the table and S3 with the bucket of infra/resources.yaml, kept in `data_dir`.

    One engine at a time in a process, since ministack's state is the process's, and one process at a time on a folder.

    Raises:
        EngineError: on start, when the folder is in use, of a newer version, damaged, or not one of Cascade's.
    """

    _running: "Engine | None" = None

    def __init__(
        self,
        data_dir: Path,
        *,
        table: str = "cascade",
        bucket: str = "cascade",
        region: str = REGION,
        template: Path = resources.TEMPLATE,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.table = table
        self.bucket = bucket
        self.region = region
        self.template = template
        self.tables = TableStore(self.data_dir / "table.sqlite")
        published = Published(self.data_dir / "files", self.data_dir / "scratch")
        self.objects = ObjectStore(self.data_dir / "bucket.sqlite", self.data_dir / "objects", published)
        self._stack = ExitStack()
        self._complain = _Complaints()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Take the folder, make table and bucket, and bring back what they held."""
        if Engine._running:
            raise EngineError(f"this process already runs an engine on {Engine._running.data_dir}")
        with ExitStack() as stack:
            stack.enter_context(_locked(self.data_dir))
            _check_format(self.data_dir)
            _import_ministack()
            Engine._running = self
            stack.callback(setattr, Engine, "_running", None)
            for store in (self.tables, self.objects):
                stack.callback(store.close)
            try:
                self.tables.open()
                self.objects.open()
                self._make_resources()
            except (OSError, ValueError, sqlite3.Error, BotoCoreError, ClientError) as error:
                raise EngineError(f"cannot use {self.data_dir}: {error}") from error
            stack.callback(gc.set_threshold, *gc.get_threshold())
            gc.set_threshold(YOUNG_OBJECTS)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Finish the running requests, close the files and let go of the folder. Clients connected here fail from now on."""
        self._stack.close()

    def _make_resources(self) -> None:
        dynamodb_client, s3_client = self.client("dynamodb"), self.client("s3")
        resources.create_table(dynamodb_client, self.table, self.template)
        resources.create_bucket(s3_client, self.bucket, self.template)
        self.tables.load(self.table, self.region)
        self.objects.load(self.bucket)

    # In process.

    def client(self, service: str) -> Any:
        """A new boto3 client of `dynamodb` or `s3`, connected."""
        with _session_lock:
            client = _session().client(service, region_name=self.region)
        self.connect(client)
        return client

    def connect(self, client: Any, *, short: bool = False) -> None:
        """Let a boto3 client of DynamoDB or S3 send its requests here and nowhere else, from now on.

        Args:
            client: what it gives and raises stays the same, but for the metadata of the response.
            short: of a DynamoDB client, take its calls before it makes an HTTP request of each, and sends what failed
                again. That is half of the time of a call. It is for the app: sets of bytes and times come back as they
                are in JSON, bytes must be `bytes`, none of the client's hooks is called, and an argument that DynamoDB does
                not know is passed over.
        """
        events, service = client.meta.events, client.meta.service_model.service_name
        send = {"dynamodb": self._send_dynamodb, "s3": self._send_s3}[service]

        def handler(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
            return send(request, client.meta.region_name)

        event = f"before-send.{service}"
        earlier = _connected.pop(client, None)
        if earlier:
            events.unregister(event, earlier)
        events.register(event, handler)
        _connected[client] = handler
        if service == "dynamodb":
            # Nobody checks the signature here, and making it is a quarter of a heartbeat's time.
            events.register("choose-signer.dynamodb", _no_signature, unique_id="cascade-no-signature")
        client.__dict__.pop("_make_api_call", None)
        if short:
            client._make_api_call = self._answer_call(client)

    def _answer_call(self, client: Any) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
        """What answers a call of DynamoDB in the place of the SDK, which would make an HTTP request of it."""
        region = client.meta.region_name

        def answer_call(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
            target = {"x-amz-target": f"DynamoDB_20120810.{operation}"}
            body = _ENCODER.encode(arguments).encode()
            status, _, text = self._answer_or(_FAILED_DYNAMODB, self.tables.handle, target, body, region)
            answer: dict[str, Any] = json.loads(text, object_hook=_with_bytes)
            answer["ResponseMetadata"] = {"HTTPStatusCode": status}
            if status < 300:
                return answer
            code = answer.pop("__type").rpartition("#")[2]
            answer["Error"] = {"Code": code, "Message": answer.pop("message")}
            raise client.exceptions.from_code(code)(answer, operation)

        return answer_call

    def _send_dynamodb(self, request: AWSPreparedRequest, region: str) -> AWSResponse:
        headers, body = _plain(request)
        return _response(request, self._answer_or(_FAILED_DYNAMODB, self.tables.handle, headers, body, region))

    def _send_s3(self, request: AWSPreparedRequest, region: str) -> AWSResponse:
        url = urlsplit(request.url)
        headers, body = _plain(request)
        path, query = unquote(url.path), parse_qs(url.query, keep_blank_values=True)
        bucket = _bucket_of_host(url.hostname or "")
        if bucket:
            path = f"/{bucket}{path}"
        answer = self._answer_or(_FAILED_S3, self.objects.handle, request.method, path, headers, body, query, region)
        return _response(request, answer)

    def _answer_or(self, failed: Answer, answer: Callable[..., Answer], *arguments: Any, **named: Any) -> Answer:
        # As on AWS, the caller learns nothing of the inside.
        try:
            return answer(*arguments, **named)
        except (OSError, sqlite3.Error) as error:
            self._complain(error)
        except Exception:
            logger.exception("a request failed")
        return failed

    # By a socket.

    def listen(self, port: int = 0) -> str:
        """Serve the same state on 127.0.0.1 as well, to everybody on this machine, until `close`. For tests only.

        Returns:
            The endpoint's URL.
        """
        from ministack.app import app

        listener = socket.create_server(("127.0.0.1", port))
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="engine-listener", daemon=True)

        def stop() -> None:
            server.should_exit = True
            thread.join()
            listener.close()

        dynamodb.handle_request = self._off_the_loop(self.tables.answer, _FAILED_DYNAMODB)
        s3.handle_request = self._off_the_loop(self.objects.answer, _FAILED_S3)
        # Closed before the stores, which then put ministack's own handlers back.
        self._stack.callback(stop)
        thread.start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def _off_the_loop(self, answer: Callable[..., Answer], failed: Answer) -> Callable[..., Any]:
        """`answer` as ministack's server calls it; it waits for a lock and the disk, so on a thread."""

        async def handle_request(*arguments: Any, **named: Any) -> Answer:
            return await asyncio.to_thread(self._answer_or, failed, answer, *arguments, **named)

        return handle_request


@cache
def _session() -> boto3.session.Session:
    """One for all clients: the description of a service takes 50 ms to read."""
    return boto3.session.Session("local", "local")


# A session makes one client at a time.
_session_lock = threading.Lock()
_connected: "weakref.WeakKeyDictionary[Any, Handler]" = weakref.WeakKeyDictionary()


def _no_signature(**_: Any) -> Any:
    return botocore.UNSIGNED


def _base64(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"no attribute value for {type(value).__name__}")


_ENCODER = json.JSONEncoder(default=_base64, separators=(",", ":"))


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON object of an answer; where it is a binary attribute value, with its bytes."""
    raw = value.get("B")
    if isinstance(raw, str):  # an attribute that is called B has an object here
        value["B"] = base64.b64decode(raw)
    return value


# The SDK sends a request that got one of these again.
_FAILED_DYNAMODB: Answer = (
    500,
    {"Content-Type": "application/x-amz-json-1.0", "x-amzn-errortype": "InternalServerError"},
    b'{"__type": "InternalServerError", "message": "The request failed and changed nothing."}',
)
_FAILED_S3: Answer = (
    500,
    {"Content-Type": "application/xml"},
    b"<Error><Code>InternalError</Code><Message>The request failed.</Message></Error>",
)


class _Complaints:
    """Says in one line that the disk fails, and not again for each of the thousand requests that follow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # When a kind of failure was last said, and how often it was not since.
        self._said: dict[tuple[type, Any], tuple[float, int]] = {}

    def __call__(self, error: Exception) -> None:
        kind, now = (type(error), getattr(error, "errno", None)), time.monotonic()
        with self._lock:
            said_at, unsaid = self._said.get(kind, (-COMPLAINT_SECONDS, 0))
            if now < said_at + COMPLAINT_SECONDS:
                self._said[kind] = said_at, unsaid + 1
                return
            self._said[kind] = now, 0
        again = f" ({unsaid} more since this was last said)" if unsaid else ""
        logger.error("cannot read or write what is stored: %s%s", error, again)


# Between botocore and ministack.


class _Body(BytesIO):
    """The body of an answer, as botocore reads it."""

    def stream(self, amt: int = 0, decode_content: bool | None = None) -> Iterator[bytes]:
        """The rest of the body in one piece."""
        rest = self.read()
        if rest:
            yield rest


def _response(request: AWSPreparedRequest, answer: Answer) -> AWSResponse:
    status, headers, body = answer
    fields = HTTPHeaders()
    for name, value in headers.items():
        fields[name] = value
    return AWSResponse(request.url, status, fields, _Body(body))


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _plain(request: AWSPreparedRequest) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request, without the framing that botocore puts around a body for its trailing checksum.

    ministack computes the checksum that `x-amz-sdk-checksum-algorithm` names from the bytes themselves.
    """
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    body: Any = request.body
    if isinstance(body, AwsChunkedWrapper):
        body = body._raw  # type: ignore[attr-defined]
        body.seek(0)
        for name in ("x-amz-trailer", "transfer-encoding"):
            headers.pop(name, None)
        rest = [
            part.strip() for part in headers.pop("content-encoding", "").split(",") if part.strip() != "aws-chunked"
        ]
        if rest:
            headers["content-encoding"] = ", ".join(rest)
    if hasattr(body, "read"):
        # The buffer of a BytesIO is the caller's own bytes, uncopied.
        body = body.getvalue() if isinstance(body, BytesIO) else body.read()
    return headers, bytes(body or b"")


def _bucket_of_host(host: str) -> str | None:
    match = re.match(r"(.+)\.s3[.-]", host)
    return match[1] if match else None


# The folder.


@contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise EngineError(f"cannot use {data_dir}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            raise EngineError(f"{data_dir} is in use by process {holder}") from None
        except OSError as error:
            raise EngineError(
                f"cannot lock {data_dir / 'lock'}, choose a folder on a local disk: {error.strerror}"
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise EngineError(f"cannot write {data_dir / 'lock'}: {error.strerror}") from error
        yield
    finally:
        os.close(descriptor)


def _check_format(data_dir: Path) -> None:
    path = data_dir / "format"
    try:
        found = int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        taken = [name for name in ("files", "objects", "table.sqlite", "bucket.sqlite") if (data_dir / name).exists()]
        if taken:
            raise EngineError(f"{data_dir} is no folder of Cascade's: it has a {taken[0]} but no format file") from None
        _write_format(path)
        return
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot read {path}: {error}") from error
    if found > FORMAT:
        raise EngineError(f"{data_dir} was written by a newer Cascade (format {found}); this one reads up to {FORMAT}")


def _write_format(path: Path) -> None:
    new = path.with_name("format.new")
    try:
        new.write_text(f"{FORMAT}\n", encoding="ascii")
        new.rename(path)
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}") from error


def _import_ministack() -> None:
    """ministack.app, which its services import while they answer, sets itself up from the environment and logs to stderr."""
    root, environment = logging.getLogger(), dict(os.environ)
    handlers, level = list(root.handlers), root.level
    os.environ.update(AUTH="false", LOG_LEVEL="WARNING")
    try:
        import ministack.app  # noqa: F401
    finally:
        for name in ("AUTH", "LOG_LEVEL"):
            os.environ.pop(name)
            if name in environment:
                os.environ[name] = environment[name]
        root.handlers[:], root.level = handlers, level
