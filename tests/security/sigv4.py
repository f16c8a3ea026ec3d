"""Whether a presigned URL is good for a request: Signature Version 4 by the rules of its specification, as S3 checks it."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, unquote, urlsplit


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def accepts(method: str, url: str, headers: dict[str, str], secret: str, now: datetime) -> bool:
    """Whether S3 would let this request in at this time. A header that was signed must be sent as it was signed."""
    parts = urlsplit(url)
    found = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(found)
    given = query.get("X-Amz-Signature", "")
    if query.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256":
        return False
    begun = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if not begun <= now < begun + timedelta(seconds=int(query["X-Amz-Expires"])):
        return False
    sent = {name.lower(): " ".join(value.split()) for name, value in headers.items()} | {"host": parts.netloc}
    signed = query["X-Amz-SignedHeaders"].split(";")
    if any(name not in sent for name in signed):
        return False
    if any(name.startswith("x-amz-") and name not in signed for name in sent):
        return False  # S3 takes no such header that was not signed
    signed_query = [(name, value) for name, value in found if name != "X-Amz-Signature"]
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in signed_query)
    canonical = "\n".join(
        [
            method,
            quote(unquote(parts.path), safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *[f"{name}:{sent[name]}" for name in signed],
            "",
            ";".join(signed),
            "UNSIGNED-PAYLOAD",
        ]
    )
    _, day, region, service, end = query["X-Amz-Credential"].split("/")
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], f"{day}/{region}/{service}/{end}", digest])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, end):
        key = _hmac(key, part)
    return hmac.compare_digest(_hmac(key, text).hex(), given)
