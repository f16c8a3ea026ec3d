"""The local server: the whole API and its page on one port, data in one folder."""

import asyncio
import errno
import importlib
import ipaddress
import logging
import os
import re
import resource
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

import uvicorn
from chalice.app import ScheduledEventConfig

from cascade.serve.engine import REGION, Engine, EngineError
from cascade.serve.gateway import Gateway
from cascade.serve.lambda_event import Context, scheduled_event
from cascade.serve.protocol import JsonProtocol

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT = 8000
DATA_DIR = ".cascade"
TABLE = BUCKET = "cascade"
KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 5.0
"""Requests that run when the server is told to stop have so long to end."""
SWEEP_SECONDS = 60.0
BACKLOG = 2048
FILES_RESERVED = 80
"""Open files that are no connections: databases, and what each thread reads or writes."""
OPEN_FILES = (65_536, 10_240)
"""The first of these limits that the system grants."""

LIGHT = frozenset({("POST", "/api/sims/{sim_id}/heartbeat")})
"""One transaction on the table, and nearly all of what a fleet sends."""

_FILE_PATH = re.compile(r"/api/sims/[^/]+/files/[^/]+/?")


class StartError(Exception):
    """The server cannot start; the message says why, in one line, for a person."""


def run(host: str | None = None, port: int | None = None, data_dir: Path | None = None) -> None:
    """Serve until SIGINT or SIGTERM; the process exits with 1 if it cannot start.

    Args:
        host: address to listen on, 127.0.0.1.
        port: port to listen on, `PORT` or 8000; 0 takes any free one.
        data_dir: where everything is kept, `CASCADE_DATA_DIR` or ./.cascade.
    """
    plain = logging.StreamHandler()
    plain.setFormatter(_PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[plain])
    # Its warnings are about what clients send, and they are told.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    _leave_no_core()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop_early)
    try:
        settled_port = _port_of_the_environment() if port is None else port
        settled_dir = data_dir or Path(os.environ.get("CASCADE_DATA_DIR") or DATA_DIR)
        serve(host or HOST, settled_port, settled_dir)
    except (StartError, EngineError) as error:
        print(f"cascade: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def serve(host: str, port: int, data_dir: Path) -> None:
    """As `run`, with everything given. Raises StartError and EngineError."""
    interval = sweep_interval()
    _shut_out_aws()
    with ExitStack() as stack:
        listener = stack.enter_context(_bound(host, port))
        engine = stack.enter_context(Engine(data_dir, table=TABLE, bucket=BUCKET))
        token, is_new_to_the_user = _token(engine.data_dir)
        _configure(token)
        app_module = _load_app(engine)
        gateway = _gateway(app_module.app, engine)
        stack.callback(gateway.pool.shutdown, wait=False, cancel_futures=True)
        stack.enter_context(_schedule(app_module, interval))
        files = _raise_file_limit()
        url = _url(host, listener)

        def ready() -> None:
            shown = f" CASCADE_TOKEN={token}" if is_new_to_the_user else ""
            print(f"cascade is ready at {url}, data in {engine.data_dir}, Ctrl+C stops it", flush=True)
            print(f"export CASCADE_URL={url}{shown}", flush=True)
            if not ipaddress.ip_address(_address(listener)).is_loopback:
                print("plain HTTP: for a trusted network, or behind a proxy with TLS", file=sys.stderr, flush=True)

        _serve(gateway, listener, ready, files)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop_at_once)
    if gateway.running:
        # Requests that outlived their time; the interpreter would wait for their threads.
        sys.stdout.flush()
        os._exit(0)


def _leave_no_core() -> None:
    """The process's memory holds the token: it must not become a file when it dies."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


class _PlainFormatter(logging.Formatter):
    """For a terminal: the message, then what else is said as `name=value`."""

    _usual = frozenset(logging.makeLogRecord({}).__dict__) | {"asctime", "message"}

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record's first line."""
        more = "".join(f" {name}={value}" for name, value in record.__dict__.items() if name not in self._usual)
        return super().formatMessage(record) + more


# Starting.


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens already, so that whoever comes early waits and is not refused."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise StartError(f"cannot listen on {host}: {error.strerror}") from None
    except OSError as error:
        hint = "; set PORT to another one, or to 0 for any that is free" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{hint}") from None
    with listener:
        yield listener


def _port_of_the_environment() -> int:
    given = os.environ.get("PORT") or str(PORT)
    if not re.fullmatch(r"[0-9]{1,5}", given) or int(given) > 65535:
        raise StartError(f"PORT is {given!r}, not a number from 0 to 65535")
    return int(given)


def _url(host: str, listener: socket.socket) -> str:
    if ipaddress.ip_address(_address(listener)).is_unspecified:
        host = socket.gethostname()  # all addresses are this machine's, and none of them is a URL that others can use
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def _address(listener: socket.socket) -> str:
    return str(listener.getsockname()[0]).partition("%")[0]


def _token(data_dir: Path) -> tuple[str, bool]:
    """The bearer token, and whether it has to be shown since the user did not give it."""
    given = os.environ.get("CASCADE_TOKEN", "").strip()
    if given:
        if not (given.isascii() and given.isprintable()):
            raise StartError("CASCADE_TOKEN has characters that are not printable ASCII, which no header can carry")
        return given, False
    path = data_dir / "token"
    try:
        if not path.exists():
            new = data_dir / "token.new"
            new.unlink(missing_ok=True)
            new.touch(mode=0o600)
            new.write_text(secrets.token_urlsafe(32) + "\n", encoding="ascii")
            new.rename(path)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"cannot make or read {path}: {error}") from None
    if not token:
        raise StartError(f"{path} is empty; remove it to have a token made")
    return token, True


def _shut_out_aws() -> None:
    """What this user has set up for the real AWS has no say here, and is not reached by accident."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(
        AWS_ACCESS_KEY_ID="local",
        AWS_SECRET_ACCESS_KEY="local",  # noqa: S106 - no secret: the engine checks none
        AWS_REGION=REGION,
        AWS_DEFAULT_REGION=REGION,
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    )


def _configure(token: str) -> None:
    """Set what the app reads from the environment on Lambda."""
    os.environ.update(CASCADE_TOKEN=token, CASCADE_TABLE=TABLE, CASCADE_BUCKET=BUCKET, CASCADE_DIRECT_DOWNLOADS="1")
    os.environ.setdefault("POWERTOOLS_LOG_LEVEL", "WARNING")
    # Metrics are lines for CloudWatch on standard output.
    os.environ.setdefault("POWERTOOLS_METRICS_DISABLED", "true")


def _load_app(engine: Engine) -> Any:
    app_module = importlib.import_module("app")
    # The app logs JSON for CloudWatch on standard output, under the name that is also this package's.
    for handler in logging.getLogger("cascade").handlers:
        handler.setFormatter(logging.getLogger().handlers[0].formatter)
        cast("logging.StreamHandler[TextIO]", handler).setStream(sys.stderr)
    from chalicelib import blobs, table

    engine.connect(table.client(), short=True)
    engine.connect(blobs.client())
    _send_once(blobs.client())
    return app_module


def _send_once(client: Any) -> None:
    """Nothing is lost between the app and this engine, so what failed would fail again, and hold a thread until then."""
    service = client.meta.service_model.service_name
    client.meta.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")


def _gateway(app: Any, engine: Engine) -> Gateway:
    from chalicelib.http import authorized

    return Gateway(app, authorized=authorized, limit=_limit, light=LIGHT, hold=engine.tables.guard.held_if_free)


def _limit(method: str, path: str) -> int:
    from chalicelib import settings

    return settings.FILE_MAX_BYTES if method == "PUT" and _FILE_PATH.fullmatch(path) else settings.JSON_MAX_BYTES


def _raise_file_limit() -> int:
    """The limit of open files, raised: a connection is a file; the usual 1,024, or 256 on macOS, are few for a fleet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in OPEN_FILES:
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            # macOS has a limit of its own below the hard one, and refuses more.
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return wanted
    return soft if soft != resource.RLIM_INFINITY else OPEN_FILES[0]


# The schedule.


@contextmanager
def _schedule(app_module: Any, interval: float) -> Iterator[None]:
    """Call the app's scheduled functions, as EventBridge does."""
    stopped = threading.Event()
    threads = []
    for source in app_module.app.event_sources:
        if isinstance(source, ScheduledEventConfig):
            function = getattr(app_module, source.handler_string.rpartition(".")[2])
            arguments = (source.name, function, interval, stopped)
            threads.append(threading.Thread(target=call_forever, args=arguments, name=source.name, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join(STOP_SECONDS)


def sweep_interval() -> float:
    """Seconds between sweeps: a minute, as on AWS, or less where silence counts sooner. Raises StartError."""
    from chalicelib import settings

    try:
        timeout = settings.heartbeat_timeout_us() / 1e6
    except (ValueError, OverflowError):
        timeout = 0
    if timeout <= 0:
        given = os.environ["CASCADE_HEARTBEAT_TIMEOUT_S"]
        raise StartError(f"CASCADE_HEARTBEAT_TIMEOUT_S is {given!r}, not a number of seconds above 0")
    return min(SWEEP_SECONDS, max(1.0, timeout / 4))


def call_forever(name: str, function: Callable[[Any, Any], Any], interval: float, stopped: threading.Event) -> None:
    """Call a scheduled function every `interval` seconds until `stopped`, whatever it raises."""
    while not stopped.wait(interval):
        event = scheduled_event(name)
        try:
            function(event, Context(event["id"]))
        except Exception:
            logger.exception("the scheduled function %s failed", name)


# Serving and stopping.


class _Server(uvicorn.Server):
    """uvicorn, with an end that is an orderly exit and not a signal raised again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, and say so, unless there is nothing to begin."""
        if self.should_exit:
            return
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal stops the server, the second one the process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        self.should_exit |= _stopped_early
        yield

    def _stop(self) -> None:
        if self.should_exit:
            _stop_at_once()
        self.should_exit = True
        if self.server_state.tasks:
            print("cascade is finishing what it has begun, Ctrl+C again stops it at once", file=sys.stderr)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End. Whoever keeps a request open for longer than that is cut off, as by a crash."""
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._hang_up)
        await super().shutdown(sockets)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _serve(gateway: Gateway, listener: socket.socket, ready: Callable[[], None], files: int) -> None:
    # asyncio accepts so many at once before anybody can count them.
    backlog = min(BACKLOG, files // 8)

    class Protocol(JsonProtocol):
        connections_max = files - backlog - FILES_RESERVED

    config = uvicorn.Config(
        gateway,
        http=Protocol,
        backlog=backlog,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing stands before it that could say whom it speaks for.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # What is left then are functions that still run.
        timeout_graceful_shutdown=int(STOP_SECONDS) + 1,
    )
    asyncio.run(_Server(config, ready).serve(sockets=[listener]))


_stopped_early = False
"""Not an Event: a second signal inside its `set` would wait for ever for the first one's lock."""


def _stop_early(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing is served yet. Where this comes, in a library or a finalizer, may be one that lets no exception out."""
    global _stopped_early
    _stopped_early = True
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # it is ending
    raise SystemExit(0)


def _stop_at_once(*_: Any) -> NoReturn:
    """Durability does not depend on an orderly end."""
    os._exit(130)
