"""What the local server hands to the app, against what API Gateway, Lambda and EventBridge hand over."""

import json
import re

import pytest
from chalice.app import Request

from cascade.serve.lambda_event import Context, HttpRequest, Resources, error_body, rest_event, scheduled_event

RESOURCES = Resources(
    ["/", "/api/runs", "/api/runs/{run_id}", "/api/runs/{run_id}/sims", "/api/runs/mine", "/api/{proxy+}", "/a/{x}/b"]
)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("/", ("/", {})),
        ("/api/runs", ("/api/runs", {})),
        ("/api/runs/", ("/api/runs", {})),
        ("/api/runs/r1", ("/api/runs/{run_id}", {"run_id": "r1"})),
        ("/api/runs/r%2F1", ("/api/runs/{run_id}", {"run_id": "r%2F1"})),
        ("/api/runs/mine", ("/api/runs/mine", {})),
        ("/api/runs/mine/sims", ("/api/runs/{run_id}/sims", {"run_id": "mine"})),
        ("/api/runs/r1/sims", ("/api/runs/{run_id}/sims", {"run_id": "r1"})),
        ("/api/other/1", ("/api/{proxy+}", {"proxy": "other/1"})),
        ("/api/runs//sims", ("/api/{proxy+}", {"proxy": "runs//sims"})),
        ("/api", None),
        ("/a//b", None),
        ("/a/x", None),
        ("/a/x/b/c", None),
        ("//a/x/b", None),
        ("/A/x/b", None),
        ("/a/{x}/b", ("/a/{x}/b", {"x": "{x}"})),
    ],
)
def test_the_resource_of_a_path(path: str, match: object) -> None:
    assert RESOURCES.match(path) == match


REQUEST = HttpRequest(
    method="PUT",
    path="/api/runs/r%201",
    query="a=1&a=2&b=&c=%C3%A4+x",
    headers=[("Host", "h:1"), ("User-Agent", "curl"), ("X-A", "1"), ("x-a", "2")],
    source_ip="127.0.0.1",
)


def test_the_event_of_a_request() -> None:
    event = rest_event(REQUEST, ("/api/runs/{run_id}", {"run_id": "r%201"}), b"\xff")
    assert event["headers"] == {"host": "h:1", "user-agent": "curl", "x-a": "2"}
    assert event["multiValueHeaders"]["x-a"] == ["1", "2"]
    assert event["queryStringParameters"] == {"a": "2", "b": "", "c": "ä x"}
    assert event["multiValueQueryStringParameters"] == {"a": ["1", "2"], "b": [""], "c": ["ä x"]}
    assert (event["path"], event["resource"], event["httpMethod"]) == ("/api/runs/r%201", "/api/runs/{run_id}", "PUT")
    assert event["pathParameters"] == {"run_id": "r%201"}
    assert (event["body"], event["isBase64Encoded"]) == (b"\xff", False)
    context = event["requestContext"]
    assert (context["resourcePath"], context["httpMethod"]) == ("/api/runs/{run_id}", "PUT")
    assert context["identity"] == {"sourceIp": "127.0.0.1", "userAgent": "curl"}
    assert context["requestId"] == REQUEST.id
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", context["requestTime"])


def test_what_is_not_there_is_null_as_on_api_gateway() -> None:
    event = rest_event(HttpRequest("GET", "/", "", [], ""), ("/", {}), b"")
    names = ("queryStringParameters", "multiValueQueryStringParameters", "pathParameters", "stageVariables", "body")
    assert [event[name] for name in names] == [None] * 5
    assert event["requestContext"]["identity"]["userAgent"] is None


def test_chalice_reads_the_event() -> None:
    request = Request(rest_event(REQUEST, ("/api/runs/{run_id}", {"run_id": "r%201"}), b"\xff"), Context("1"))
    assert (request.method, request.raw_body, request.headers["X-A"]) == ("PUT", b"\xff", "2")
    assert request.query_params.getlist("a") == ["1", "2"]


@pytest.mark.parametrize(
    ("headers", "expects"),
    [([("Expect", "100-Continue")], True), ([("expect", "200-ok")], False), ([("X-Expect", "100-continue")], False)],
)
def test_a_client_that_waits_for_a_sign(headers: list[tuple[str, str]], expects: bool) -> None:
    assert HttpRequest("PUT", "/", "", headers, "").expects_continue is expects


def test_the_context_counts_down() -> None:
    context = Context("id")
    assert 0 < context.get_remaining_time_in_millis() <= 29_000
    context.deadline = 0
    assert context.get_remaining_time_in_millis() == 0
    assert context.invoked_function_arn == "arn:aws:lambda:us-east-1:000000000000:function:cascade"


def test_the_event_of_the_schedule() -> None:
    event = scheduled_event("sweep")
    assert event["resources"] == ["arn:aws:events:us-east-1:000000000000:rule/sweep"]
    assert (event["source"], event["detail-type"]) == ("aws.events", "Scheduled Event")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event["time"])
    assert scheduled_event("sweep")["id"] != event["id"]


def test_errors_have_one_shape() -> None:
    assert json.loads(error_body('say "ä"')) == {"detail": 'say "ä"'}
