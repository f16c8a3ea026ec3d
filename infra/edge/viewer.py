"""At viewer-request: who may send what, told by the head of the request alone. 1 MB zipped, 128 MB, 5 seconds."""

import os
import time
from typing import Any

from chalicelib import names, tokens
from chalicelib.errors import CascadeError
from infra.edge import cloudfront

TOKEN_SECONDS = 300
"""The secret is read again after this long: a rotation needs no deployment."""

cloudfront.configure()
_cached: tuple[float, list[bytes]] | None = None


def handler(event: cloudfront.Event, context: Any) -> dict[str, Any]:
    """The request, to go on, or the answer that ends it: 401, 404, 405, 422, 411."""
    request = cloudfront.request_of(event)
    try:
        valid = _tokens()
    except Exception as error:  # noqa: BLE001  the edge of the process: whatever it is, the client may come again
        print({"message": "cannot read the token", "reason": type(error).__name__})
        detail = "temporarily unable to check the token, send the same request again"
        return cloudfront.answer(503, {"detail": detail}, {"Retry-After": "1"})
    if not tokens.matches(cloudfront.header(request, "authorization") or "", valid):
        return cloudfront.answer(401, {"detail": tokens.UNAUTHORIZED}, {"WWW-Authenticate": "Bearer"})
    found = cloudfront.target(request)
    if found is None:
        return cloudfront.answer(404, {"detail": "not found"})
    method = request["method"]
    if method not in cloudfront.METHODS:
        allow = ", ".join(cloudfront.METHODS)
        return cloudfront.answer(405, {"detail": f"{method} is not allowed here"}, {"Allow": allow})
    try:
        names.checked_name(found[1])
    except CascadeError as error:
        return cloudfront.refusal(error)
    length = cloudfront.header(request, "content-length")
    if method == "PUT" and not (length or "").isdecimal():
        return cloudfront.answer(411, {"detail": "send the file with a Content-Length"})
    return request


def _tokens() -> list[bytes]:
    """The valid tokens; the last known ones when the secret can't be read just now."""
    global _cached
    now = time.monotonic()
    if _cached is None or now - _cached[0] > TOKEN_SECONDS:
        try:
            secret = _client().get_secret_value(SecretId=os.environ["CASCADE_TOKEN_SECRET"])["SecretString"]
        except Exception as error:
            if _cached is None:
                raise
            # Uploads go on through an outage of the secret store. So does a token that was just taken away, so it is told.
            print({"message": "cannot read the token, the last known one counts", "reason": type(error).__name__})
            secret = " ".join(token.decode() for token in _cached[1])
        _cached = (now, tokens.valid(secret))
    return _cached[1]


def _client() -> Any:
    import boto3
    from botocore.config import Config

    # Of the five seconds that there are.
    config = Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard", "total_max_attempts": 2})
    return boto3.session.Session().client(
        "secretsmanager", region_name=os.environ.get("CASCADE_REGION") or os.environ.get("AWS_REGION"), config=config
    )
