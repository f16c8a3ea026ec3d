"""CPU of one heartbeat through the app beside one default boto3 `update_item`, in turns on the same engine in process."""

import json
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.local import TOKEN, engine

ROUNDS, CALLS = 15, 200


def main() -> None:
    """Measure and print."""
    with engine() as running:
        from app import app
        from chalicelib import sims

        plain = running.client("dynamodb")
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

        def call(method: str, path: str, route: str, parameters: dict[str, str] | None, body: str) -> dict[str, Any]:
            event = {
                "resource": route,
                "path": path,
                "headers": headers,
                "multiValueHeaders": {name: [value] for name, value in headers.items()},
                "multiValueQueryStringParameters": None,
                "pathParameters": parameters,
                "stageVariables": None,
                "requestContext": {
                    "httpMethod": method,
                    "resourcePath": route,
                    "path": path,
                    "identity": {},
                    "requestId": "r",
                },
                "body": body,
                "isBase64Encoded": False,
            }
            answer: dict[str, Any] = app(event, SimpleNamespace(aws_request_id="r", function_name="cascade"))
            return answer

        created = call("POST", "/api/runs", "/api/runs", None, '{"name": "bench", "sims": [{}]}')
        sim_id = json.loads(created["body"])["sims"][0]["id"]
        path = f"/api/sims/{sim_id}/heartbeat"

        def beat() -> None:
            answer = call("POST", path, "/api/sims/{sim_id}/heartbeat", {"sim_id": sim_id}, '{"state": "running"}')
            assert answer["statusCode"] == 200

        def update() -> None:
            # The least that a heartbeat must write, with the client that `boto3.client("dynamodb")` gives.
            plain.update_item(
                TableName=running.table,
                Key={"pk": {"S": sim_id}, "sk": {"S": sims.HOT}},
                UpdateExpression="SET #state = :state, beat = :now",
                ConditionExpression="attribute_exists(pk)",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues={":state": {"S": "running"}, ":now": {"N": str(time.time_ns() // 1000)}},
            )

        def cpu_us(work: Callable[[], None]) -> float:
            start = time.process_time()
            for _ in range(CALLS):
                work()
            return (time.process_time() - start) / CALLS * 1e6

        cpu_us(beat)
        cpu_us(update)
        pairs = [(cpu_us(beat), cpu_us(update)) for _ in range(ROUNDS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print("| what | goal | measured |\n|---|---|---|")
    print(f"| CPU of a heartbeat through the app and the engine, µs | | {ours:.0f} |")
    print(f"| CPU of a default boto3 `update_item` on the same engine, µs | | {bare:.0f} |")
    print(f"| ratio, median of {ROUNDS} rounds of {CALLS} in turns | at most 1.2 | {ratio:.2f} |")


if __name__ == "__main__":
    main()
