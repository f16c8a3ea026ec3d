"""The only module that knows DynamoDB: one table, plain Python items in and out, every call a single request.

Items are dicts of str, int, bytes, bool, None, list and dict. Key names are `pk` and `sk`; the sparse index `sweep` is
keyed by `sweep_pk`. Expressions are given as DynamoDB wants them, with values under `:name` and names under `#name`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from chalicelib import settings
from chalicelib.errors import Busy

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient

Item = dict[str, Any]

SWEEP_INDEX = "sweep"
TRANSACTION_MAX_ITEMS = 100
BATCH_GET_MAX = 100
BATCH_WRITE_MAX = 25

# A Lambda has 29 s in all: two quick retries of the SDK, then the caller is told to come back.
CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 3},
    connect_timeout=2,
    read_timeout=5,
    max_pool_connections=32,
    # The SDK builds its own anew for each request: a tenth of a heartbeat.
    user_agent="cascade",
    # Requests are built by this project's code and tested; checking each again costs a tenth of a heartbeat.
    parameter_validation=False,
)

TRANSIENT_CODES = frozenset(
    {
        "InternalServerError",
        "InternalFailure",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)


class ConditionFailed(Exception):
    """A conditional write found something else; `old` is the item that was there, None when there was none."""

    def __init__(self, old: Item | None) -> None:
        super().__init__("condition failed")
        self.old = old


class TransactionFailed(Exception):
    """A transaction was cancelled by a condition.

    `failed` holds the positions of the writes whose condition failed; `old` the item that was there (None for none),
    at the positions that asked for it.
    """

    def __init__(self, failed: list[int], old: dict[int, Item | None]) -> None:
        super().__init__(f"conditions failed at {failed}")
        self.failed = failed
        self.old = old


@cache
def client() -> "DynamoDBClient":
    """The process's one client, made on first use."""
    # Not boto3: it brings a second S3 client, and its import is a tenth of a cold start.
    session: Any = botocore.session.get_session()
    made: DynamoDBClient = session.create_client("dynamodb", region_name=settings.region(), config=CONFIG)
    return made


# boto3's own TypeSerializer turns every number into a Decimal and back, and bytes into a wrapper: four times the CPU.
def encode(value: Any) -> dict[str, Any]:
    """A Python value as a DynamoDB attribute value."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if value is None:
        return {"NULL": True}
    if isinstance(value, Mapping):
        return {"M": {k: encode(v) for k, v in value.items()}}
    if isinstance(value, Sequence):
        return {"L": [encode(v) for v in value]}
    raise TypeError(f"no attribute value for {type(value).__name__}")


def decode(value: Mapping[str, Any]) -> Any:
    """A DynamoDB attribute value as a Python value; numbers are integers, the table holds no others."""
    ((kind, inner),) = value.items()
    if kind in ("S", "BOOL"):
        return inner
    if kind == "N":
        return int(inner)
    if kind == "B":
        return bytes(inner)
    if kind == "M":
        return {k: decode(v) for k, v in inner.items()}
    if kind == "L":
        return [decode(v) for v in inner]
    return None


def encode_item(item: Item) -> dict[str, dict[str, Any]]:
    """An item as DynamoDB wants it."""
    return {k: encode(v) for k, v in item.items()}


def decode_item(item: Any) -> Item:
    """An item as Python wants it."""
    return {k: decode(v) for k, v in item.items()}


def key(pk: str, sk: str) -> dict[str, dict[str, str]]:
    """The key of an item."""
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def _translate(error: Exception) -> Exception:
    """Transient faults become `Busy`; anything else stays what it is."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if error.response["Error"]["Code"] in TRANSIENT_CODES or status >= 500:
            return Busy()
        return error
    return Busy()


def _call(operation: str, **request: Any) -> Any:
    try:
        return getattr(client(), operation)(TableName=settings.table_name(), **request)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            old = error.response.get("Item")
            raise ConditionFailed(decode_item(old) if old else None) from None
        raise _translate(error) from error
    except (ConnectionError, HTTPClientError) as error:
        raise _translate(error) from error


def _expression(condition: str | None, values: Item | None, names: dict[str, str] | None) -> dict[str, Any]:
    request: dict[str, Any] = {}
    if condition:
        request["ConditionExpression"] = condition
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if values:
        request["ExpressionAttributeValues"] = encode_item(values)
    if names:
        request["ExpressionAttributeNames"] = names
    return request


def get(pk: str, sk: str) -> Item | None:
    """One item, strongly consistent."""
    item = _call("get_item", Key=key(pk, sk), ConsistentRead=True).get("Item")
    return decode_item(item) if item else None


def put(item: Item, condition: str | None = None, values: Item | None = None) -> None:
    """Write an item whole. Raises ConditionFailed."""
    _call("put_item", Item=encode_item(item), **_expression(condition, values, None))


def replace(item: Item) -> Item | None:
    """Write an item whole; returns what was there before."""
    old = _call("put_item", Item=encode_item(item), ReturnValues="ALL_OLD").get("Attributes")
    return decode_item(old) if old else None


def update(
    pk: str,
    sk: str,
    expression: str,
    values: Item | None = None,
    names: dict[str, str] | None = None,
    condition: str | None = None,
    returns: str = "NONE",
) -> Item:
    """Change an item in one request; `returns` is DynamoDB's ReturnValues. Raises ConditionFailed."""
    answer = _call(
        "update_item",
        Key=key(pk, sk),
        UpdateExpression=expression,
        ReturnValues=returns,
        **_expression(condition, values, names),
    )
    return decode_item(answer.get("Attributes", {}))


def delete(pk: str, sk: str, condition: str | None = None, values: Item | None = None) -> None:
    """Remove an item; removing what is not there is fine. Raises ConditionFailed."""
    _call("delete_item", Key=key(pk, sk), **_expression(condition, values, None))


def query(
    pk: str,
    first: str = "",
    last: str = "",
    *,
    backward: bool = False,
    page: int | None = None,
    attributes: Sequence[str] | None = None,
) -> Iterator[Item]:
    """Items of a partition with `first` <= sk <= `last`, in key order, strongly consistent, read page by page.

    Args:
        first, last: inclusive bounds; empty means open.
        backward: newest key first.
        page: items a request at most; DynamoDB's own bound is 1 MB.
        attributes: only these, to spare bytes on the wire.
    """
    values: Item = {":pk": pk}
    condition = "pk = :pk"
    if first and last:
        condition += " AND sk BETWEEN :first AND :last"
        values |= {":first": first, ":last": last}
    elif first:
        condition += " AND sk >= :first"
        values[":first"] = first
    elif last:
        condition += " AND sk <= :last"
        values[":last"] = last
    request: dict[str, Any] = {
        "KeyConditionExpression": condition,
        "ExpressionAttributeValues": encode_item(values),
        "ConsistentRead": True,
        "ScanIndexForward": not backward,
    }
    if page:
        request["Limit"] = page
    if attributes:
        names = {f"#a{i}": name for i, name in enumerate(attributes)}
        request |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
    while True:
        answer = _call("query", **request)
        for item in answer["Items"]:
            yield decode_item(item)
        start = answer.get("LastEvaluatedKey")
        if not start:
            return
        request["ExclusiveStartKey"] = start


def sweep_entries(sweep_pk: str) -> Iterator[tuple[str, str]]:
    """(pk, sk) of the items in one shard of the sparse index; eventually consistent, so each is checked again."""
    request: dict[str, Any] = {
        "IndexName": SWEEP_INDEX,
        "KeyConditionExpression": "sweep_pk = :p",
        "ExpressionAttributeValues": {":p": {"S": sweep_pk}},
    }
    while True:
        answer = _call("query", **request)
        for item in answer["Items"]:
            yield item["pk"]["S"], item["sk"]["S"]
        start = answer.get("LastEvaluatedKey")
        if not start:
            return
        request["ExclusiveStartKey"] = start


def _batch_get_page(keys: Sequence[tuple[str, str]], attributes: Sequence[str] | None) -> list[Item]:
    table = settings.table_name()
    wanted: dict[str, Any] = {"Keys": [key(*k) for k in keys], "ConsistentRead": True}
    if attributes:
        names = {f"#a{i}": name for i, name in enumerate(attributes)}
        wanted |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
    pending: dict[str, Any] = {table: wanted}
    items: list[Item] = []
    attempts = 0
    while pending:
        # Unprocessed keys are DynamoDB's way to throttle a batch, or its 16 MB bound: go on while it makes progress.
        try:
            answer = client().batch_get_item(RequestItems=pending)
        except (ClientError, ConnectionError, HTTPClientError) as error:
            raise _translate(error) from error
        got = answer["Responses"].get(table, [])
        items += [decode_item(item) for item in got]
        pending = dict(answer.get("UnprocessedKeys") or {})
        attempts = 0 if got else attempts + 1
        if attempts == 3:
            raise Busy()
    return items


def batch_get(keys: Iterable[tuple[str, str]], attributes: Sequence[str] | None = None) -> dict[tuple[str, str], Item]:
    """Many items by key, strongly consistent, 100 a request, several requests at a time. Missing ones are left out."""
    wanted = list(dict.fromkeys(keys))
    if attributes:
        attributes = list(dict.fromkeys(("pk", "sk", *attributes)))
    pages = [wanted[i : i + BATCH_GET_MAX] for i in range(0, len(wanted), BATCH_GET_MAX)]
    results = fan_out(lambda page: _batch_get_page(page, attributes), pages)
    return {(item["pk"], item["sk"]): item for items in results for item in items}


def _batch_write_page(requests: list[Any]) -> None:
    table = settings.table_name()
    pending: dict[str, Any] = {table: requests}
    stuck = 0
    while pending:
        before = len(pending[table])
        try:
            answer = client().batch_write_item(RequestItems=pending)
        except (ClientError, ConnectionError, HTTPClientError) as error:
            raise _translate(error) from error
        pending = dict(answer.get("UnprocessedItems") or {})
        stuck = stuck + 1 if pending and len(pending[table]) == before else 0
        if stuck == 3:
            raise Busy()


def batch_write(puts: Iterable[Item] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
    """Unconditional writes, 25 a request, several requests at a time. Not atomic: callers make that harmless."""
    requests = [{"PutRequest": {"Item": encode_item(item)}} for item in puts]
    requests += [{"DeleteRequest": {"Key": key(*k)}} for k in deletes]
    pages = [requests[i : i + BATCH_WRITE_MAX] for i in range(0, len(requests), BATCH_WRITE_MAX)]
    for _ in fan_out(_batch_write_page, pages):
        pass


def fan_out(call: Any, inputs: Sequence[Any], threads: int = 8) -> list[Any]:
    """`call` on each input, several at a time; the results in order. The first error is raised."""
    if len(inputs) < 2:
        return [call(i) for i in inputs]
    with ThreadPoolExecutor(min(threads, len(inputs))) as pool:
        return list(pool.map(call, inputs))


# Parts of a transaction, made by these and written by `transact`.


def put_op(item: Item, condition: str | None = None, values: Item | None = None) -> dict[str, Any]:
    """A put inside a transaction."""
    op: dict[str, Any] = {"TableName": settings.table_name(), "Item": encode_item(item)}
    if condition:
        op["ConditionExpression"] = condition
    if values:
        op["ExpressionAttributeValues"] = encode_item(values)
    return {"Put": op}


def update_op(
    pk: str,
    sk: str,
    expression: str,
    values: Item | None = None,
    names: dict[str, str] | None = None,
    condition: str | None = None,
    returns_old: bool = False,
) -> dict[str, Any]:
    """An update inside a transaction; with `returns_old` a failed condition tells what was there."""
    op: dict[str, Any] = {"TableName": settings.table_name(), "Key": key(pk, sk), "UpdateExpression": expression}
    op |= _expression(condition, values, names)
    if not returns_old:
        op.pop("ReturnValuesOnConditionCheckFailure", None)
    return {"Update": op}


def delete_op(pk: str, sk: str, condition: str | None = None) -> dict[str, Any]:
    """A delete inside a transaction."""
    op: dict[str, Any] = {"TableName": settings.table_name(), "Key": key(pk, sk)}
    if condition:
        op["ConditionExpression"] = condition
    return {"Delete": op}


def transact(ops: Sequence[dict[str, Any]]) -> None:
    """All of `ops` or none, in one request.

    Raises:
        TransactionFailed: a condition failed.
        Busy: another transaction touched the same items, or throttling; nothing was written.
    """
    try:
        client().transact_write_items(TransactItems=ops)  # type: ignore[arg-type]
    except ClientError as error:
        if error.response["Error"]["Code"] != "TransactionCanceledException":
            raise _translate(error) from error
        reasons = error.response.get("CancellationReasons", [])
        codes = [reason.get("Code", "None") for reason in reasons]
        failed = [i for i, code in enumerate(codes) if code == "ConditionalCheckFailed"]
        if failed:
            old = {i: decode_item(reasons[i]["Item"]) if reasons[i].get("Item") else None for i in failed}
            raise TransactionFailed(failed, old) from None
        if any(code in ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded") for code in codes):
            raise Busy() from error
        raise
    except (ConnectionError, HTTPClientError) as error:
        raise _translate(error) from error
