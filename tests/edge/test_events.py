"""The edge functions on events of the documented shape, one at a time."""

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib import blobs, files, settings
from infra.edge import cloudfront, origin, viewer
from tests.aws import TOKEN, Api
from tests.edge.test_uploads import assert_consistent


def event(kind: str, **values: str) -> Any:
    text = (Path(__file__).parent / "events" / f"{kind}.json").read_text()
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return json.loads(text)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "_cached", (float("inf"), [TOKEN.encode()]))


def test_a_good_request_goes_on_as_it_came() -> None:
    came = event("viewer-request")
    assert viewer.handler(came, None) == event("viewer-request")["Records"][0]["cf"]["request"]


def test_the_last_of_two_headers_counts() -> None:
    came = event("viewer-request")
    cloudfront.request_of(came)["headers"]["authorization"].append({"key": "authorization", "value": "Bearer no"})
    assert viewer.handler(came, None)["status"] == "401"


def test_a_refusal_is_an_answer_in_cloudfronts_shape() -> None:
    came = event("viewer-request")
    del cloudfront.request_of(came)["headers"]["authorization"]
    assert viewer.handler(came, None) == {
        "status": "401",
        "statusDescription": "Unauthorized",
        "headers": {
            "content-type": [{"key": "Content-Type", "value": "application/json"}],
            "x-content-type-options": [{"key": "X-Content-Type-Options", "value": "nosniff"}],
            "cache-control": [{"key": "Cache-Control", "value": "no-store"}],
            "www-authenticate": [{"key": "WWW-Authenticate", "value": "Bearer"}],
        },
        "body": '{"detail":"missing or wrong token: send Authorization: Bearer <token>"}',
        "bodyEncoding": "text",
    }


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"method": "POST"}, "405"),
        ({"uri": "/api/sims/x/files/a/b"}, "404"),
        ({"uri": "/api/sims/x/files/"}, "404"),
        ({"uri": "/api/sims/x/files/a%20b"}, "422"),
        ({"uri": "/api/sims/x/files/%FF"}, "422"),
        ({"uri": "/api/sims/x/files/a%0a"}, "422"),
    ],
)
def test_what_the_head_alone_tells(change: dict[str, str], status: str) -> None:
    came = event("viewer-request")
    cloudfront.request_of(came).update(change)
    assert viewer.handler(came, None)["status"] == status


@pytest.mark.parametrize("length", ["", "-1", "1e3", "0x10", "٣x"])
def test_a_length_that_is_none(length: str) -> None:
    came = event("viewer-request")
    cloudfront.request_of(came)["headers"]["content-length"][0]["value"] = length
    assert viewer.handler(came, None)["status"] == "411"


def test_a_request_to_s3_holds_room_and_names_the_hold(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    came = event("origin-request", sim_id=sim_id)
    goes = origin.on_request(came, None)
    assert goes["uri"] == f"/files/{sim_id}/kernel-stats.csv"
    (hold_id,) = files._ledger(sim_id)["holds"]
    assert goes["headers"]["x-amz-meta-upload"] == [{"key": "x-amz-meta-upload", "value": hold_id}]
    assert goes["headers"]["content-type"] == [{"key": "Content-Type", "value": "text/csv"}]
    untouched = event("origin-request")["Records"][0]["cf"]["request"]
    for name in ("host", "content-length", "via"):
        assert goes["headers"][name] == untouched["headers"][name]
    assert goes["origin"] == untouched["origin"]
    assert set(goes["headers"]) == {"host", "content-length", "via", "content-type", "x-amz-meta-upload"}


def test_what_s3_stored_becomes_the_file(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    hold_id = files.hold(sim_id, "kernel-stats.csv", 3)
    version = blobs.put(f"files/{sim_id}/kernel-stats.csv", b"abc")
    came = event("origin-response", sim_id=sim_id, hold_id=hold_id, version=version)
    answer = origin.on_response(came, None)
    assert answer["status"] == "200"
    assert json.loads(answer["body"]) == lambda_api.get(f"/api/sims/{sim_id}/files").json()[0]
    assert set(answer["headers"]) == {"content-type", "x-content-type-options", "cache-control"}
    again = origin.on_response(came, None)
    assert again == answer, "CloudFront may call twice"
    assert_consistent(sim_id)


def test_a_fault_inside_is_a_500_that_says_nothing(lambda_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("secrets inside")

    monkeypatch.setattr(files, "hold", broken)
    answer = origin.on_request(event("origin-request", sim_id=lambda_api.new_sim()), None)
    assert (answer["status"], answer["body"]) == ("500", '{"detail":"internal error"}')


def test_a_response_to_a_request_that_no_function_made_is_a_500(service: None) -> None:
    came = event("origin-response", sim_id="sim-6b4c91e71437", version="1")
    del cloudfront.request_of(came)["headers"]["x-amz-meta-upload"]
    assert origin.on_response(came, None)["status"] == "500"


def test_settings_come_with_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"CASCADE_TABLE": "far", "CASCADE_REGION": "eu-west-1"}')
    for name in ("CASCADE_TABLE", "CASCADE_REGION"):
        monkeypatch.setenv(name, "here")
    monkeypatch.setattr(cloudfront, "CONFIG_FILE", path)
    cloudfront.configure()
    assert (settings.table_name(), settings.region()) == ("far", "eu-west-1")
