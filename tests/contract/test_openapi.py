"""The OpenAPI document is valid, whole, and what the API does."""

from typing import Any

import jsonschema
from openapi_spec_validator import OpenAPIV31SpecValidator

from app import ENDPOINTS, app
from tests.aws import Api

PUBLIC = {"/api/health", "/api/openapi.json"}


def document(api: Api) -> dict[str, Any]:
    answer = api.get("/api/openapi.json", token=None)
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(m.upper(), path, op) for path, methods in document["paths"].items() for m, op in methods.items()]


def test_it_is_valid_openapi_3_1(api: Api) -> None:
    described = document(api)
    assert described["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(described).validate()


def test_it_has_every_route_of_the_api_and_no_other(api: Api) -> None:
    described = document(api)
    assert {(m, path) for m, path, _ in operations(described)} == {(e.method, e.path) for e in ENDPOINTS}
    assert set(described["paths"]) == {path for path in app.routes if path.startswith("/api/")}


def test_every_operation_says_what_can_go_wrong(api: Api) -> None:
    for method, path, operation in operations(document(api)):
        statuses = set(operation["responses"])
        assert operation["summary"], path
        assert "500" in statuses
        if path not in PUBLIC:
            assert {"401", "503"} <= statuses, (method, path)
        if "{" in path:
            assert "404" in statuses, (method, path)
        for status, response in operation["responses"].items():
            assert response["description"]
            if status >= "400":
                reference = response["content"]["application/json"]["schema"]
                assert reference == {"$ref": "#/components/schemas/Error"}


def test_what_is_for_everybody_and_nothing_else_needs_no_token(api: Api) -> None:
    described = document(api)
    assert described["security"] == [{"token": []}]
    assert {path for _, path, operation in operations(described) if operation.get("security") == []} == PUBLIC


def test_operation_ids_are_unique(api: Api) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document(api))]
    assert len(ids) == len(set(ids))


def test_answers_are_what_it_says(api: Api) -> None:
    described = document(api)
    run = api.post("/api/runs", {"name": "x", "sims": [{"params": {"a": 1}}, {}]}).json()
    sim = run["sims"][0]["id"]
    api.post(f"/api/sims/{sim}/logs", {"seq": 1, "lines": ["x"]})
    api.post(f"/api/sims/{sim}/step-timeline", {"simulated": {"steps": [], "summary": {}}})
    api.put(f"/api/sims/{sim}/files/a.csv", b"x")
    calls: list[tuple[str, str, str, Any]] = [
        ("GET", "/api/health", "/api/health", None),
        ("GET", "/api/runs", "/api/runs", None),
        ("GET", "/api/runs/{run_id}", f"/api/runs/{run['id']}", None),
        ("POST", "/api/runs", "/api/runs", {"name": "y", "sims": [{}]}),
        ("POST", "/api/runs", "/api/runs", {}),
        ("POST", "/api/runs/{run_id}/sims", f"/api/runs/{run['id']}/sims", {"sims": [{}]}),
        ("POST", "/api/runs/{run_id}/claim", f"/api/runs/{run['id']}/claim", {"worker": "w"}),
        ("POST", "/api/sims/{sim_id}/heartbeat", f"/api/sims/{sim}/heartbeat", {"state": "failed", "error": "x"}),
        ("POST", "/api/sims/{sim_id}/heartbeat", "/api/sims/sim-000000000000/heartbeat", {"state": "failed"}),
        ("POST", "/api/sims/{sim_id}/logs", f"/api/sims/{sim}/logs", {"seq": "0"}),
        ("GET", "/api/sims/{sim_id}", f"/api/sims/{sim}", None),
        ("GET", "/api/sims/{sim_id}/logs", f"/api/sims/{sim}/logs", None),
        ("GET", "/api/sims/{sim_id}/kernels", f"/api/sims/{sim}/kernels", None),
        ("GET", "/api/sims/{sim_id}/step-timeline", f"/api/sims/{sim}/step-timeline", None),
        ("GET", "/api/sims/{sim_id}/files", f"/api/sims/{sim}/files", None),
        ("POST", "/api/sims/{sim_id}/cancel", f"/api/sims/{sim}/cancel", None),
        ("POST", "/api/runs/{run_id}/cancel", f"/api/runs/{run['id']}/cancel", None),
    ]
    for method, route, path, body in calls:
        answer = api(method, path, body)
        response = described["paths"][route][method.lower()]["responses"][str(answer.status)]
        schema = {**response["content"]["application/json"]["schema"], "components": described["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json())
