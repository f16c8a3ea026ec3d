"""At origin-request and origin-response: room for the file before S3 gets it, and its row afterwards. 50 MB, 30 seconds."""

import re
from collections.abc import Callable
from typing import Any

from infra.edge import cloudfront

cloudfront.configure()

from chalicelib import blobs, errors, files, metrics, names  # noqa: E402  they read the settings
from chalicelib.log import logger  # noqa: E402

_KEY = re.compile(r"/files/(sim-[0-9a-f]{12})/([^/]+)")
HOLD_HEADER = f"x-amz-meta-{blobs.UPLOAD_METADATA}"
KEPT = ("content-length", "host", "transfer-encoding", "via")
"""Headers of a request that are CloudFront's own, which a function must leave as they are."""


def on_request(event: cloudfront.Event, context: Any) -> dict[str, Any]:
    """The request to S3, or the answer that ends it: 404, 413, 503; for a download 302."""
    return _answered(_request, event)


def on_response(event: cloudfront.Event, context: Any) -> dict[str, Any]:
    """The stored file, or why there is none."""
    return _answered(_response, event)


def _answered(handle: Callable[[cloudfront.Event], dict[str, Any]], event: cloudfront.Event) -> dict[str, Any]:
    try:
        return handle(event)
    except errors.CascadeError as error:
        return cloudfront.refusal(error)
    except Exception:  # noqa: BLE001  the edge of the process, as in chalicelib.http
        logger().exception("unhandled", path=cloudfront.request_of(event)["uri"])
        return cloudfront.answer(500, {"detail": "internal error"})
    finally:
        metrics.flush()


def _request(event: cloudfront.Event) -> dict[str, Any]:
    request = cloudfront.request_of(event)
    found = cloudfront.target(request)
    if found is None:
        raise errors.NotFound("not found")
    sim_id, name = found[0], names.checked_name(found[1])
    if request["method"] == "GET":
        return cloudfront.answer(302, {}, {"Location": files.url(names.check_id(sim_id), name)}) | {"body": ""}
    size = int(cloudfront.header(request, "content-length") or 0)
    hold_id = files.hold(sim_id, name, size)
    # Nothing that a client sent goes on but the body: S3 takes rights, tags and more from headers and the query.
    kept = {name: value for name, value in request["headers"].items() if name in KEPT}
    added = cloudfront.headers({"Content-Type": names.content_type(name), HOLD_HEADER: hold_id})
    return {**request, "uri": f"/{names.object_key(sim_id, name)}", "querystring": "", "headers": kept | added}


def _response(event: cloudfront.Event) -> dict[str, Any]:
    record = event["Records"][0]["cf"]
    request, response = record["request"], record["response"]
    match = _KEY.fullmatch(request["uri"])
    hold_id = cloudfront.header(request, HOLD_HEADER)
    if not match or not hold_id:
        raise LookupError("not a request that this door made")
    sim_id, name = match[1], match[2]
    version = cloudfront.header(response, "x-amz-version-id")
    if response["status"] != "200" or not version:
        logger().error("S3 did not store a file", sim_id=sim_id, file=name, status=response["status"])
        # Its room is free again; the sweep still looks whether anything was stored after all.
        files.abandon(sim_id, name, hold_id, None)
        raise errors.Busy()
    size = int(cloudfront.header(request, "content-length") or 0)
    stored = files.commit(sim_id, name, hold_id, size, version)
    made = cloudfront.answer(200, stored.model_dump())
    kept = {name: value for name, value in response["headers"].items() if name in ("transfer-encoding", "via")}
    return {**made, "headers": kept | made["headers"]}
