"""DynamoDB items kept as JSON text, in place of the dicts ministack keeps them in.

An item of nine attributes is ten dicts, 2.7 KB; as text it is 0.3 KB, needs no parsing when a database of them is loaded
and no encoding when it is written. The price is 3 us of parsing a read. A query reads the part of a partition that its key
condition names, where ministack evaluates every item of the partition for every page.
"""

import json
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

Item = dict[str, Any]

PAGE_BYTES = 1024 * 1024
"""DynamoDB's own bound of a query's page."""
SORT_CACHE_MIN = 64
"""Partitions with fewer items are sorted anew when asked; keeping their order would cost more memory than it is worth."""


def pack(item: Item) -> str:
    """An item as its JSON text."""
    return json.dumps(item, separators=(",", ":"))


def unpack(text: str) -> Item:
    """An item from its JSON text."""
    return cast(Item, json.loads(text))


class Partition(dict[str, Any]):
    """The items of one partition by sort key: text inside, items to whoever asks."""

    __slots__ = ("_order", "window")

    def __init__(self, items: Mapping[str, Item] | None = None) -> None:
        super().__init__()
        self._order: list[str] | None = None
        self.window: Iterable[Item] | None = None
        """What `values` gives while one query runs."""
        for sk, item in (items or {}).items():
            self[sk] = item

    def text(self, sk: str) -> str | None:
        """An item's JSON text."""
        return super().get(sk)

    def set_text(self, sk: str, text: str) -> None:
        """Store an item given as text."""
        if self._order is not None and sk not in self:
            insort(self._order, sk)
        super().__setitem__(sk, text)

    def order(self) -> list[str]:
        """The sort keys in order. Code points order as DynamoDB's UTF-8 bytes do."""
        if self._order is not None:
            return self._order
        order = sorted(self)
        if len(order) >= SORT_CACHE_MIN:
            self._order = order
        return order

    def __getitem__(self, sk: str) -> Item:
        return unpack(super().__getitem__(sk))

    def __setitem__(self, sk: str, item: Item) -> None:
        self.set_text(sk, pack(item))

    def get(self, sk: str, default: Any = None) -> Any:
        """An item, or `default`."""
        text = super().get(sk)
        return default if text is None else unpack(text)

    def pop(self, sk: str, *default: Any) -> Any:
        """Take an item out."""
        if sk not in self:
            return super().pop(sk, *default)
        if self._order is not None:
            del self._order[bisect_left(self._order, sk)]
        return unpack(super().pop(sk))

    def values(self) -> Any:
        """The items, as they are asked for."""
        return (self[sk] for sk in self) if self.window is None else iter(self.window)

    def items(self) -> Any:
        """Sort keys and items, as they are asked for."""
        return ((sk, self[sk]) for sk in self)


class Items(dict[str, Any]):
    """All items of a table by partition key, in place of ministack's dict of dicts."""

    def __init__(self, items: Mapping[str, Mapping[str, Item]] | None = None) -> None:
        super().__init__()
        for pk, partition in (items or {}).items():
            self[pk] = Partition(partition)

    def __missing__(self, pk: str) -> Partition:
        return cast(Partition, self.setdefault(pk))

    def setdefault(self, pk: str, default: Any = None) -> Any:
        """A partition, made empty if it is not there; `default` is the plain dict that ministack offers."""
        partition = super().get(pk)
        if partition is None:
            partition = self[pk] = Partition(default)
        return partition


# Which part of a partition a query needs.

_KEY_CONDITION = re.compile(
    r"""\s*(?P<pk>[\w#.-]+)\s*=\s*(?P<pk_value>:\w+)\s*
    (?:AND\s+(?:
        (?P<between>[\w#.-]+)\s+BETWEEN\s+(?P<first>:\w+)\s+AND\s+(?P<last>:\w+)
      | (?P<compared>[\w#.-]+)\s*(?P<operator>=|<=?|>=?)\s*(?P<operand>:\w+)
      | begins_with\s*\(\s*(?P<prefixed>[\w#.-]+)\s*,\s*(?P<prefix>:\w+)\s*\)
    )\s*)?""",
    re.IGNORECASE | re.VERBOSE,
)


def partition_of(query: Mapping[str, Any], pk_name: str) -> tuple[str, re.Match[str]] | None:
    """The partition that a Query of the table itself reads, and its parsed condition; None for any other form."""
    match = _KEY_CONDITION.fullmatch(query.get("KeyConditionExpression") or "")
    if not match or query.get("IndexName"):
        return None
    if (query.get("ExpressionAttributeNames") or {}).get(match["pk"], match["pk"]) != pk_name:
        return None
    value = (query.get("ExpressionAttributeValues") or {}).get(match["pk_value"]) or {}
    pk = value.get("S")
    return (pk, match) if isinstance(pk, str) else None


_PLAIN = frozenset(
    {"TableName", "KeyConditionExpression", "ExpressionAttributeValues", "ConsistentRead", "ScanIndexForward", "Limit"}
)


def whole_answer(
    partition: Partition, query: Mapping[str, Any], match: re.Match[str], table: Mapping[str, Any]
) -> str | None:
    """The answer to the plainest query, of all items between two keys, joined from their texts.

    ministack reads and writes each item for it, and takes the condition apart five times: a sixth of a log chunk's time.
    None for any other query, for a wrong one, and for one with more than a page.
    """
    values = query["ExpressionAttributeValues"]
    used = [values.get(match[group]) for group in ("pk_value", "first", "last") if match[group]]
    if not query.keys() <= _PLAIN or (match["pk"], match["between"]) != (table["pk_name"], table["sk_name"]):
        return None
    limit = query.get("Limit")
    if limit is not None and not (type(limit) is int and limit > 0):
        return None
    if len(values) != 3 or not all(
        value and value.keys() == {"S"} and value["S"] and type(value["S"]) is str for value in used
    ):
        return None
    if used[1]["S"] > used[2]["S"]:
        return None
    texts: list[str] = []
    size = 0
    for sk in window(partition, query, match, table):
        text = partition.text(sk) or ""
        texts.append(text)
        size += len(text)  # more than DynamoDB counts
        if size > PAGE_BYTES or len(texts) == limit:
            return None  # the answer says where to go on
    return f'{{"Items":[{",".join(texts)}],"Count":{len(texts)},"ScannedCount":{len(texts)}}}'


def window(
    partition: Partition, query: Mapping[str, Any], match: re.Match[str], table: Mapping[str, Any]
) -> Iterator[str]:
    """Sort keys of `partition` that `query` selects, in its order, from its start key on.

    ministack evaluates the condition again, on these; no more than these, since they count for the page's limit.
    """
    values = query.get("ExpressionAttributeValues") or {}

    def operand(group: str) -> str | None:
        value = (values.get(match[group]) or {}).get("S") if match[group] else None
        return value if isinstance(value, str) else None

    order = partition.order()
    first, last = 0, len(order)
    lower, upper, prefix = operand("first"), operand("last"), operand("prefix")
    if match["operator"] in ("=", ">", ">="):
        lower = operand("operand")
    if match["operator"] in ("=", "<", "<="):
        upper = operand("operand")
    if prefix is not None:
        first = bisect_left(order, prefix)
        last = bisect_right(order, prefix, key=lambda sk: sk[: len(prefix)])
    if lower is not None:
        first = (bisect_right if match["operator"] == ">" else bisect_left)(order, lower)
    if upper is not None:
        last = (bisect_left if match["operator"] == "<" else bisect_right)(order, upper)
    start = ((query.get("ExclusiveStartKey") or {}).get(table["sk_name"]) or {}).get("S")
    if query.get("ScanIndexForward", True):
        first = max(first, bisect_right(order, start)) if start is not None else first
        return (order[i] for i in range(first, last))
    last = min(last, bisect_left(order, start)) if start is not None else last
    return (order[i] for i in range(last - 1, first - 1, -1))
