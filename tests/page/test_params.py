"""`GET /api/runs/{run_id}/params`: what the page filters by."""

import pytest

from tests.aws import Api


def run_of(api: Api, params: list[dict[str, object]]) -> tuple[str, list[str]]:
    run = api.post("/api/runs", {"name": "a", "sims": [{"params": one} for one in params]}).json()
    return run["id"], [sim["id"] for sim in run["sims"]]


def test_params_come_in_the_order_of_the_sims(api: Api) -> None:
    given = [{"l2": f"{i}MB", "deep": {"a": [1, None, "é"]}} for i in range(3)]
    run, ids = run_of(api, given)
    page = api.get(f"/api/runs/{run}/params").json()
    assert page == {
        "sims": [{"id": sim, "params": one} for sim, one in zip(ids, given, strict=True)],
        "next_cursor": None,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_pages_follow_each_other_until_all_are_read(api: Api, limit: int) -> None:
    run, ids = run_of(api, [{"i": i} for i in range(3)])
    found, cursor = [], None
    while True:
        page = api.get(f"/api/runs/{run}/params?limit={limit}" + (f"&cursor={cursor}" if cursor else "")).json()
        assert len(page["sims"]) <= limit
        found += [sim["id"] for sim in page["sims"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ids


def test_a_page_of_the_largest_params_stays_under_5_mb(lambda_api: Api) -> None:
    run, ids = run_of(lambda_api, [{"text": "x" * 16_000, "i": i} for i in range(400)])
    found: list[str] = []
    cursor = "0"
    pages = 0
    while cursor is not None:
        answer = lambda_api.get(f"/api/runs/{run}/params?cursor={cursor}")
        assert answer.status == 200
        assert len(answer.body) < 5_000_000
        found += [sim["id"] for sim in answer.json()["sims"]]
        cursor = answer.json()["next_cursor"]
        pages += 1
    assert found == ids
    assert pages == 2


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "cursor=x", "cursor=-1"])
def test_a_wrong_query_is_422(api: Api, query: str) -> None:
    run, _ = run_of(api, [{}])
    assert api.get(f"/api/runs/{run}/params?{query}").status == 422


def test_a_cursor_behind_the_end_gives_an_empty_page(api: Api) -> None:
    run, _ = run_of(api, [{}])
    assert api.get(f"/api/runs/{run}/params?cursor=7").json() == {"sims": [], "next_cursor": None}


def test_an_unknown_run_is_404_and_no_token_401(api: Api) -> None:
    assert api.get("/api/runs/run-000000000000/params").status == 404
    assert api.get("/api/runs/run-000000000000/params", token=None).status == 401
