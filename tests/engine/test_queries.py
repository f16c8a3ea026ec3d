"""Items as text: the same answers as ministack gives from dicts, sooner."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from ministack.services import dynamodb

from cascade.serve.engine import Engine
from cascade.serve.packed import SORT_CACHE_MIN, Items, Partition

pytestmark = pytest.mark.engine

SEED = 20260729


def test_a_partition_keeps_its_order_through_every_change() -> None:
    rng = random.Random(SEED)
    partition, model = Partition(), dict[str, dict[str, Any]]()
    for _ in range(2000):
        sk = f"{rng.randrange(200):03d}"
        if rng.random() < 0.6:
            partition[sk] = model[sk] = {"n": {"N": str(rng.random())}}
        elif sk in model:
            assert partition.pop(sk) == model.pop(sk)
        if rng.random() < 0.1:
            assert partition.order() == sorted(model)
    assert len(partition) > SORT_CACHE_MIN
    assert dict(partition.items()) == model
    assert partition.get("none") is None
    assert partition.pop("none", 1) == 1
    with pytest.raises(KeyError):
        partition.pop("none")


def test_what_is_read_can_be_changed_without_changing_what_is_stored() -> None:
    items = Items({"p": {"s": {"a": {"S": "1"}}}})
    items["p"]["s"]["a"]["S"] = "2"
    assert items["p"]["s"] == {"a": {"S": "1"}}
    assert items["q"] is items.setdefault("q", {})


class Twins:
    """The kept table, and one with the same items that ministack keeps its own way."""

    def __init__(self, engine: Engine) -> None:
        self.client = engine.client("dynamodb")
        engine.connect(self.client, short=True)  # the SDK refuses some of what ministack is to refuse here
        self.client.create_table(
            TableName="plain",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "sweep_pk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "sweep",
                    "KeySchema": [
                        {"AttributeName": "sweep_pk", "KeyType": "HASH"},
                        {"AttributeName": "pk", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
            BillingMode="PAY_PER_REQUEST",
        )

    def put(self, item: dict[str, Any]) -> None:
        for table in ("cascade", "plain"):
            self.client.put_item(TableName=table, Item=item)

    def query(self, **request: Any) -> dict[str, Any]:
        """The answer of both tables."""
        answers = []
        for table in ("cascade", "plain"):
            try:
                answer = self.client.query(TableName=table, **request)
                answer.pop("ResponseMetadata")
            except self.client.exceptions.ClientError as error:
                answer = {"error": error.response["Error"]}
            answers.append(answer)
        assert answers[0] == answers[1], request
        return dict(answers[0])


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """One pair for the whole module; each test has partitions of its own."""
    with Engine(tmp_path_factory.mktemp("twins") / "data") as engine:
        yield Twins(engine)


CONDITIONS = [
    "pk = :p",
    "#p = :p",
    "pk = :p AND sk BETWEEN :a AND :b",
    "pk=:p and #s between :a and :b",
    "pk = :p AND sk = :a",
    "pk = :p AND sk < :a",
    "pk = :p AND sk <= :a",
    "pk = :p AND sk > :a",
    "pk = :p AND sk >= :a",
    "pk = :p AND begins_with(sk, :a)",
    "pk = :p AND begins_with ( #s , :a )",
    "sk >= :a AND pk = :p",
    "(pk = :p) AND (sk >= :a)",
    "sk = :a",
    "pk = :p OR sk = :a",
    "pk = :p AND other = :a",
    "pk = :p AND sk <> :a",
    "pk >= :p",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_query_answers_as_ministack_does(twins: Twins, condition: str) -> None:
    rng = random.Random(f"{SEED} {condition}")
    keys = ["", "a", "a#", "a#1", "b", "log#0001", "log#0002", "ä", "\U0010ffff", "\U0010ffffx", "z" * 30]
    keys += [f"log#{rng.randrange(10**6):06d}" for _ in range(90)]
    for i, sk in enumerate(keys[1:]):
        size = rng.choice((1, 10, 1000))
        twins.put(
            {"pk": {"S": f"{condition} {i % 3 // 2}"}, "sk": {"S": sk}, "n": {"N": str(i)}, "text": {"S": "x\n" * size}}
        )
    for _ in range(15):
        low, high = rng.choice(keys), rng.choice(keys)
        values = {":p": f"{condition} 0", ":a": low, ":b": high, ":n": 50}
        used = condition + " :n" * (filtered := rng.random() < 0.3)
        request: dict[str, Any] = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {
                name: {"N": str(value)} if isinstance(value, int) else {"S": value}
                for name, value in values.items()
                if name in used
            },
            "ScanIndexForward": rng.random() < 0.5,
        }
        names = {name: key for name, key in (("#p", "pk"), ("#s", "sk")) if name in condition}
        if names:
            request["ExpressionAttributeNames"] = names
        if filtered:
            request["FilterExpression"] = "n < :n"
        if rng.random() < 0.6:
            request["Limit"] = rng.choice((1, 2, 7, 89, 200))
        if rng.random() < 0.2:
            request["Select"] = "COUNT"
        if rng.random() < 0.2:
            request["ExclusiveStartKey"] = {"pk": {"S": f"{condition} 0"}, "sk": {"S": rng.choice(keys[1:])}}
        pages = 0
        while True:
            answer = twins.query(**request)
            pages += 1
            if "LastEvaluatedKey" not in answer or pages > 100:
                break
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


@pytest.mark.parametrize("forward", [True, False])
def test_the_plainest_query_is_answered_from_the_texts(
    twins: Twins, forward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = f"plain {forward}"
    for i in range(3):
        twins.put({"pk": {"S": pk}, "sk": {"S": f"a#{i}"}, "ä": {"M": {"B": {"B": b"\xff"}}}})
    request: dict[str, Any] = {
        "KeyConditionExpression": "pk = :pk AND sk BETWEEN :first AND :last",
        "ExpressionAttributeValues": {":pk": {"S": pk}, ":first": {"S": "a#"}, ":last": {"S": "a#1"}},
        "ConsistentRead": True,
        "ScanIndexForward": forward,
    }
    whole = [twins.query(**request), twins.query(**request, Limit=3)]
    assert "LastEvaluatedKey" in twins.query(**request, Limit=2)
    assert twins.query(**request | {"ExpressionAttributeValues": {":pk": {"S": pk}}})["error"]
    for values in (request["ExpressionAttributeValues"], request["ExpressionAttributeValues"] | {":last": {"S": "a"}}):
        wrong = request | {"ExpressionAttributeValues": values}
        assert [twins.query(**wrong, Limit=limit)["error"]["Code"] for limit in (0, -1)] == ["ValidationException"] * 2
    monkeypatch.delattr(dynamodb, "_query")
    for answer, more in zip(whole, ({}, {"Limit": 3}), strict=True):
        got = twins.client.query(TableName="cascade", **request, **more)
        del got["ResponseMetadata"]
        assert got == answer


def test_pages_end_at_a_megabyte_as_ministacks_do(twins: Twins) -> None:
    for i in range(12):
        twins.put({"pk": {"S": "large"}, "sk": {"S": f"{i:02d}"}, "data": {"B": bytes(300_000)}})
    request: dict[str, Any] = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "large"}}}
    counts = []
    for forward in (True, False):
        request["ScanIndexForward"] = forward
        request.pop("ExclusiveStartKey", None)
        while True:
            answer = twins.query(**request)
            counts.append(answer["Count"])
            if "LastEvaluatedKey" not in answer:
                break
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    assert counts == [3, 3, 3, 3] * 2 or counts == [3, 3, 3, 3, 0] * 2
