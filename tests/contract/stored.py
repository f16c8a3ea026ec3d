"""What lies in the object store, listed by the tests themselves: the app has no right to do so."""

from chalicelib import blobs, settings


def versions(prefix: str = "") -> list[tuple[str, str]]:
    """(key, version id) of every version under `prefix`."""
    answer = blobs.client().list_object_versions(Bucket=settings.bucket_name(), Prefix=prefix)
    assert not answer.get("IsTruncated")
    return [(entry["Key"], entry["VersionId"]) for entry in answer.get("Versions", ())]
