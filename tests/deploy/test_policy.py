"""The functions' rights are what the code needs: no call without its right, no right without its call."""

import copy
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities import parameters
from moto import mock_aws

from cascade import sample_log
from chalicelib import blobs, files, http, settings, stored, sweep, table
from tests import aws, rights
from tests.aws import Api
from tests.conftest import Clock
from tests.contract import faults
from tests.rights import Grant, Need

# Lambda itself writes what a function prints, and sends the events that a function failed on.
BY_LAMBDA = {
    Need("logs:CreateLogStream", rights.LOGS),
    Need("logs:PutLogEvents", rights.LOGS),
    Need("sqs:SendMessage", rights.QUEUE),
}


@pytest.fixture(scope="module")
def policy() -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(rights.stage_policy())
    return document


_walked: set[Need] = set()


@pytest.fixture
def used(request: pytest.FixtureRequest) -> set[Need]:
    """What the app calls in a walk through everything that it does."""
    if not _walked:
        before = set(rights.SEEN)
        rights.SEEN.clear()
        walk(*(request.getfixturevalue(name) for name in ("lambda_api", "clock", "monkeypatch")))
        _walked.update(rights.SEEN, BY_LAMBDA)
        rights.SEEN.update(before)
    return _walked


def walk(api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small enough that every kind of thing is kept in S3, and sent from there.
    monkeypatch.setattr("chalicelib.logs.INLINE_MAX_BYTES", 10)
    monkeypatch.setattr("chalicelib.logs.ITEM_MAX_BYTES", 10)
    monkeypatch.setattr("chalicelib.timing.INLINE_MAX_BYTES", 10)
    run_id, sims = api.new_run(3, headers={"Idempotency-Key": "walk"})
    sim_id = api.post(f"/api/runs/{run_id}/claim", {"worker": "w"}, headers={"Idempotency-Key": "c"}).json()["id"]
    api.post(f"/api/sims/{sim_id}/heartbeat", {"state": "running"})
    lines = list(sample_log.generate(kernels=2))
    for seq in (1, 0, 2):
        api.post(f"/api/sims/{sim_id}/logs", {"seq": seq, "lines": lines})
    for _ in range(2):
        api.post(f"/api/sims/{sim_id}/step-timeline", {"simulated": {"steps": [1, 2], "summary": {"a": "b" * 99}}})
        api.put(f"/api/sims/{sim_id}/files/a.csv", b"a,b\n")
    upload = api.post(f"/api/sims/{sim_id}/uploads/b.csv", {"size": 3}).json()
    version = blobs.client().put_object(
        Bucket=settings.bucket_name(), Key=f"files/{sim_id}/b.csv", Body=b"abc", Metadata={"upload": upload["id"]}
    )["VersionId"]
    stored.handle({"object": {"key": f"files/{sim_id}/b.csv", "version-id": version}})
    api.post(f"/api/sims/{sim_id}/uploads/b.csv/{upload['id']}")
    with pytest.MonkeyPatch.context() as small:
        small.setattr(settings, "RESPONSE_MAX_BYTES", 10)
        for path in (
            "",
            "/logs",
            "/logs?tail=1",
            "/kernels",
            "/kernels.csv",
            "/step-timeline",
            "/files",
            "/files/a.csv",
        ):
            assert api.get(f"/api/sims/{sim_id}{path}").status in (200, 302), path
        assert api.get(f"/api/sims/{sim_id}/logs", headers={"Accept": "text/plain"}).status == 302
    assert api.get(f"/api/runs/{run_id}").status == 200
    assert api.get("/api/runs").status == 200
    with pytest.raises(ZeroDivisionError):
        blobs.put_stream("exports/", (b"%d" % (1 // n) for n in (1, 0)), "text/plain")
    # A put that dies, silence, a long error, gaps, and what the sweep makes of them.
    files.hold(sims[1], "dead", 3)
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    api.post(f"/api/sims/{sim_id}/logs", {"seq": 9, "lines": lines})
    api.post(f"/api/sims/{sim_id}/heartbeat", {"state": "failed", "error": "e" * 3000})
    clock.advance(1000)
    sweep.sweep()
    api.post(f"/api/runs/{run_id}/sims", {"sims": [{}]}, headers={"Idempotency-Key": "more"})
    api.post(f"/api/runs/{run_id}/cancel")
    assert api.delete(f"/api/runs/{run_id}").status == 204
    clock.advance(10_000)
    sweep.sweep()
    secret(monkeypatch)


def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_aws(), pytest.MonkeyPatch.context() as env:
        boto3.client("secretsmanager").create_secret(Name="token", SecretString="one two")
        env.delenv("CASCADE_TOKEN")
        env.setenv("CASCADE_TOKEN_SECRET", "token")
        parameters.clear_caches()
        assert http.authorized({"authorization": "Bearer two"})
        assert not http.authorized({"authorization": f"Bearer {aws.TOKEN}"})
        parameters.clear_caches()


def test_every_call_is_granted(policy: dict[str, Any], used: set[Need]) -> None:
    assert rights.missing(policy, used) == set()


def test_every_grant_is_used(policy: dict[str, Any], used: set[Need]) -> None:
    assert rights.unused(policy, used) == set()


def test_each_grant_taken_away_is_missed(policy: dict[str, Any], used: set[Need]) -> None:
    for index, statement in enumerate(policy["Statement"]):
        for kind in ("Action", "Resource"):
            values = statement[kind] if isinstance(statement[kind], list) else [statement[kind]]
            for value in values:
                poorer = copy.deepcopy(policy)
                poorer["Statement"][index][kind] = [other for other in values if other != value]
                assert rights.missing(poorer, used), f"nobody misses {value} of {statement['Sid']}"


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("dynamodb:Scan", rights.TABLE),
        ("dynamodb:DeleteTable", rights.TABLE),
        ("dynamodb:Query", f"{rights.TABLE}/index/*"),
        ("secretsmanager:GetSecretValue", f"{rights.SECRET}*"),
        ("s3:GetObject", f"{rights.BUCKET}/files/*"),
        ("s3:PutObject", f"{rights.BUCKET}/deployments/*"),
        ("s3:*", "*"),
    ],
)
def test_each_grant_too_many_is_told(policy: dict[str, Any], used: set[Need], action: str, resource: str) -> None:
    richer = copy.deepcopy(policy)
    richer["Statement"].append({"Effect": "Allow", "Action": action, "Resource": resource})
    assert rights.unused(richer, used) == {Grant(action, resource)}


def test_a_pattern_in_the_place_of_a_name_is_told(policy: dict[str, Any], used: set[Need]) -> None:
    wider = copy.deepcopy(policy)
    (index,) = (statement for statement in wider["Statement"] if statement["Sid"] == "SweepIndex")
    index["Resource"] = f"{rights.TABLE}/index/*"
    assert rights.unused(wider, used) == {Grant("dynamodb:Query", f"{rights.TABLE}/index/*")}


@pytest.mark.parametrize(
    "call",
    [
        ("dynamodb", "Scan", {}),
        ("dynamodb", "Query", {"IndexName": "other"}),
        ("s3", "GetObject", {"Key": "files/x"}),
        ("s3", "PutObject", {"Key": "elsewhere/x"}),
        ("s3", "ListObjectVersions", {"Prefix": ""}),
    ],
)
def test_a_call_that_no_grant_covers_is_told(policy: dict[str, Any], call: tuple[str, str, dict[str, Any]]) -> None:
    assert rights.missing(policy, rights.needs(*call))


def test_a_call_whose_rights_nobody_knows_is_told() -> None:
    with pytest.raises(LookupError):
        list(rights.needs("s3", "PutBucketPolicy", {"Bucket": "b", "Key": ""}))


def test_nothing_is_granted_on_everything(policy: dict[str, Any]) -> None:
    for grant in rights.grants(policy):
        assert "*" not in grant.action
        assert grant.resource.count("*") == grant.resource.endswith(("/*", ":*"))


def test_a_call_of_any_test_that_no_grant_covers_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is what the fixture of all tests asks after each."""
    scan = Need("dynamodb:Scan", rights.TABLE)
    monkeypatch.setattr(rights, "SEEN", {scan, Need("dynamodb:GetItem", rights.TABLE)})
    monkeypatch.setattr(rights, "_checked", set())
    assert rights.newly_refused() == {scan}
    assert rights.newly_refused() == set()


@pytest.mark.parametrize("when", ["after", "sent twice"])
def test_calls_of_the_app_are_seen_through_a_test_that_makes_them_fail(
    api: Api, monkeypatch: pytest.MonkeyPatch, when: faults.When
) -> None:
    monkeypatch.setattr(rights, "SEEN", set())
    table.client().scan(TableName=settings.table_name())  # a test's own
    with faults.at(99, when):
        table.get("a", "b")
        table.client().scan(TableName=settings.table_name())
    assert {Need("dynamodb:GetItem", rights.TABLE)} == rights.SEEN
