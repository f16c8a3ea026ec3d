"""What lies in the object store, listed by the tests themselves: the app has no right to do so."""

from chalicelib import blobs, settings, table


def versions(prefix: str = "") -> list[tuple[str, str]]:
    """(key, version id) of every version under `prefix`."""
    answer = blobs.client().list_object_versions(Bucket=settings.bucket_name(), Prefix=prefix)
    assert not answer.get("IsTruncated")
    return [(entry["Key"], entry["VersionId"]) for entry in answer.get("Versions", ())]


def orphans() -> list[tuple[str, str]]:
    """(key, version id) of every version that no item names; the versions that items name are all there."""
    named = set()
    for item in table.client().scan(TableName=settings.table_name())["Items"]:
        if "blob" in item:
            named.add((item["blob"]["S"], item["version"]["S"]))
        elif item["sk"]["S"].startswith("f#"):
            named.add((f"files/{item['pk']['S']}/{item['sk']['S'][2:]}", item["version"]["S"]))
    found = versions()
    assert named <= set(found)
    return [version for version in found if version not in named]
