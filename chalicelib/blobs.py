"""The only module that knows S3: one versioned bucket, bytes in and out, every call a single request.

Keys: `files/<sim_id>/<name>` output files, `logs/<sim_id>/...` large chunks, `timing/<sim_id>/...` step timing,
`kernels/<sim_id>/...` large kernel pages, `exports/...` answers too large to send inline, kept for a day.
"""

import secrets
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from chalicelib import settings
from chalicelib.errors import Busy

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

PRESIGNED_SECONDS = 300
"""A redirect's URL works for this long."""
UPLOAD_SECONDS = 600
"""A put to an upload's URL must begin within this time; its hold lives longer."""
UPLOAD_METADATA = "upload"
"""Of an object: the hold its bytes were written under."""
PART_BYTES = 8 * settings.MIB

CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 3},
    connect_timeout=2,
    read_timeout=20,
    max_pool_connections=32,
    # The SDK builds its own anew for each request: a tenth of a heartbeat.
    user_agent="cascade",
    signature_version="s3v4",
    s3={"addressing_style": "path", "payload_signing_enabled": False},
    # S3 checks what it is told to check: a CRC of our own is sent with each put, so bytes damaged on the way are refused.
    request_checksum_calculation="when_supported",
)


class Gone(Exception):
    """The version is not there (any more)."""


@cache
def client() -> "S3Client":
    """The process's one client, made on first use."""
    # Not boto3: it brings a second S3 client, and its import is a tenth of a cold start.
    session: Any = botocore.session.get_session()
    made: S3Client = session.create_client("s3", region_name=settings.region(), config=CONFIG)
    return made


def _call(operation: str, **request: Any) -> Any:
    try:
        return getattr(client(), operation)(Bucket=settings.bucket_name(), **request)
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or error.response["Error"]["Code"] in ("SlowDown", "RequestTimeout"):
            raise Busy() from error
        if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchVersion", "404"):
            raise Gone(request.get("Key")) from error
        raise
    except (ConnectionError, HTTPClientError) as error:
        raise Busy() from error


def put(key: str, body: bytes, content_type: str = "application/octet-stream") -> str:
    """Store bytes; returns the version id. Durable when it returns."""
    return str(_call("put_object", Key=key, Body=body, ContentType=content_type)["VersionId"])


def get(key: str, version: str) -> bytes:
    """The bytes of one version."""
    body: bytes = _call("get_object", Key=key, VersionId=version)["Body"].read()
    return body


def delete(key: str, version: str) -> None:
    """Remove one version for good; removing what is not there is fine."""
    _call("delete_object", Key=key, VersionId=version)


def _listed(prefix: str, *kinds: str) -> Iterator[dict[str, Any]]:
    request: dict[str, Any] = {"Prefix": prefix}
    while True:
        answer = _call("list_object_versions", **request)
        for kind in kinds:
            yield from answer.get(kind, ())
        if not answer.get("IsTruncated"):
            return
        request |= {"KeyMarker": answer["NextKeyMarker"], "VersionIdMarker": answer["NextVersionIdMarker"]}


def versions(prefix: str) -> Iterator[tuple[str, str]]:
    """(key, version id) of every version and delete marker under `prefix`."""
    return ((entry["Key"], entry["VersionId"]) for entry in _listed(prefix, "Versions", "DeleteMarkers"))


def written(prefix: str) -> Iterator[tuple[str, str, int]]:
    """(key, version id, when S3 got it in microseconds since the epoch) of every version under `prefix`."""
    for entry in _listed(prefix, "Versions"):
        yield entry["Key"], entry["VersionId"], int(entry["LastModified"].timestamp() * 1_000_000)


def delete_prefix(prefix: str) -> None:
    """Remove every version under `prefix` for good."""
    found = list(versions(prefix))
    for i in range(0, len(found), 1000):
        objects = [{"Key": k, "VersionId": v} for k, v in found[i : i + 1000]]
        answer = _call("delete_objects", Delete={"Objects": objects, "Quiet": True})
        if answer.get("Errors"):
            # A partial failure answers 200: what is left is found again by the next listing.
            raise Busy(f"could not delete {len(answer['Errors'])} objects, send the same request again")


def presigned(key: str, version: str, filename: str, content_type: str) -> str:
    """A URL of one version that works for five minutes, delivered as an attachment whatever it contains."""
    return str(
        client().generate_presigned_url(
            "get_object",
            Params={
                "Bucket": settings.bucket_name(),
                "Key": key,
                "VersionId": version,
                "ResponseContentType": content_type,
                "ResponseContentDisposition": f'attachment; filename="{filename}"',
            },
            ExpiresIn=PRESIGNED_SECONDS,
        )
    )


def presigned_put(key: str, size: int, content_type: str, upload: str) -> tuple[str, dict[str, str]]:
    """A URL that takes exactly `size` bytes once or several times within ten minutes, and the headers to send with them."""
    url = client().generate_presigned_url(
        "put_object",
        Params={
            "Bucket": settings.bucket_name(),
            "Key": key,
            "ContentLength": size,
            "ContentType": content_type,
            "Metadata": {UPLOAD_METADATA: upload},
        },
        ExpiresIn=UPLOAD_SECONDS,
    )
    return str(url), {"Content-Type": content_type, f"x-amz-meta-{UPLOAD_METADATA}": upload}


def upload_of(key: str, version: str) -> tuple[int, str] | None:
    """Size of a version and the hold it was written under; None for bytes that came through the app. Raises Gone."""
    found = _call("head_object", Key=key, VersionId=version)
    upload = found.get("Metadata", {}).get(UPLOAD_METADATA)
    return (int(found["ContentLength"]), str(upload)) if upload else None


def put_stream(prefix: str, parts: Iterator[bytes], content_type: str) -> tuple[str, str]:
    """Store a stream of unknown length under a new key of `prefix`; returns key and version id."""
    name = f"{prefix}{secrets.token_hex(16)}"
    upload = _call("create_multipart_upload", Key=name, ContentType=content_type)["UploadId"]
    done: list[dict[str, Any]] = []
    buffer = bytearray()

    def flush() -> None:
        answer = _call("upload_part", Key=name, UploadId=upload, PartNumber=len(done) + 1, Body=bytes(buffer))
        done.append(
            {
                "PartNumber": len(done) + 1,
                "ETag": answer["ETag"],
                **{k: answer[k] for k in ("ChecksumCRC32",) if k in answer},
            }
        )
        buffer.clear()

    try:
        for part in parts:
            buffer += part
            if len(buffer) >= PART_BYTES:
                flush()
        flush()
        answer = _call("complete_multipart_upload", Key=name, UploadId=upload, MultipartUpload={"Parts": done})
    except BaseException:
        _call("abort_multipart_upload", Key=name, UploadId=upload)
        raise
    return name, str(answer["VersionId"])
