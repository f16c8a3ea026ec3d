"""`make deploy` to a fresh local AWS, from a fresh checkout, again, from another one, with a change, and away again.

The tests run in this order: the last ones change and remove what the others, also those of other modules, look at.
"""

import gzip
import json
import shutil
import threading
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade import sample_log
from cascade.client import Client
from chalicelib import settings
from infra import stage
from tests.deploy.cloud import STAGE, copy_checkout
from tests.deploy.conftest import TIMEOUT_S, Deployed
from tests.deploy.gateway import EVENT_BYTES, GATEWAY_BYTES
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MIB = settings.MIB
KNOWN_OTHERWISE = ["a download is an attachment", "a file with a percent-encoded slash in its name"]
"""Checks of infra/verify_aws.py that ministack answers otherwise than API Gateway."""


@pytest.fixture(scope="module")
def client(deployed: Deployed) -> Any:
    with deployed.client() as made:
        yield made


@pytest.fixture(scope="module")
def sims(client: httpx.Client) -> Any:
    """Ids of queued sims, one for each who asks."""
    run = client.post("/api/runs", json={"name": "a run", "sims": [{} for _ in range(40)]}).json()
    return iter([sim["id"] for sim in run["sims"]])


def test_it_prints_the_url_after_a_smoke_test(deployed: Deployed) -> None:
    assert "smoke test" in deployed.output
    assert f"CASCADE_URL={deployed.direct}\n" in deployed.output
    assert deployed.output.endswith(f"the page: {deployed.direct}/\n")
    assert deployed.token not in deployed.output


# The contract, over HTTP, through the proxy.


def test_the_four_calls_of_a_simulator(client: httpx.Client, sims: Any) -> None:
    sim_id = next(sims)
    beat = client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"})
    assert (beat.status_code, beat.json()) == (200, {"state": "running", "cancel": False})
    chunk = {"seq": 0, "lines": ["replayed line", "日本語 \u001b[0m", ""]}
    for _ in range(2):
        assert client.post(f"/api/sims/{sim_id}/logs", json=chunk).status_code == 204
    timing = {"simulated": {"steps": [], "summary": {"n": 12345678901234567890, "z": 0.0}}, "compare": {"é": 1}}
    assert client.post(f"/api/sims/{sim_id}/step-timeline", json=timing).status_code == 204
    body = bytes(range(256)) * 40
    octets = {"Content-Type": "application/octet-stream"}
    put = client.put(f"/api/sims/{sim_id}/files/kernel-stats.csv", content=body, headers=octets)
    assert put.status_code == 200
    assert put.json() | {"created_at": 0} == {
        "name": "kernel-stats.csv",
        "size": len(body),
        "content_type": "text/csv",
        "created_at": 0,
    }
    final = {"state": "failed", "exit_code": 3, "error": "out of registers"}
    assert client.post(f"/api/sims/{sim_id}/heartbeat", json=final).json()["state"] == "failed"

    shown = client.get(f"/api/sims/{sim_id}").json()
    assert (shown["state"], shown["exit_code"], shown["error"]) == ("failed", 3, "out of registers")
    assert shown["log"]["lines"] == 3
    assert client.get(f"/api/sims/{sim_id}/logs").json()["chunks"] == [chunk]
    assert client.get(f"/api/sims/{sim_id}/step-timeline").json() == timing
    fetched = client.get(f"/api/sims/{sim_id}/files/kernel-stats.csv")
    assert fetched.status_code == 302
    assert httpx.get(fetched.headers["location"]).content == body


def test_runs_and_claims(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "deploy-1"}
    body = {"name": "pair", "sims": [{"name": "a", "params": {"x": 1}}, {"name": "b"}]}
    made = client.post("/api/runs", json=body, headers=key)
    assert made.status_code == 201
    assert client.post("/api/runs", json=body, headers=key).json() == made.json()
    assert client.post("/api/runs", json={**body, "name": "other"}, headers=key).status_code == 409
    run_id = made.json()["id"]
    assert client.get("/api/runs?limit=1").json()["runs"][0]["id"] == run_id
    claims = [client.post(f"/api/runs/{run_id}/claim", json={"worker": "w"}) for _ in range(3)]
    assert [claim.status_code for claim in claims] == [200, 200, 204]
    assert {claim.json()["name"] for claim in claims[:2]} == {"a", "b"}
    assert client.delete(f"/api/runs/{run_id}").status_code == 409
    assert client.post(f"/api/runs/{run_id}/cancel").json()["counts"]["cancelled"] == 2
    assert client.delete(f"/api/runs/{run_id}").status_code == 204
    assert client.get(f"/api/runs/{run_id}").status_code == 404


def test_kernels_of_a_log_sent_out_of_order_by_eight_at_once(client: httpx.Client, sims: Any) -> None:
    sim_id = next(sims)
    lines = list(sample_log.generate(kernels=6))
    chunks = [lines[i : i + 400] for i in range(0, len(lines), 400)]

    def send(seq: int) -> None:
        assert client.post(f"/api/sims/{sim_id}/logs", json={"seq": seq, "lines": chunks[seq]}).status_code == 204

    threads = [threading.Thread(target=send, args=(seq,)) for seq in reversed(range(len(chunks)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page = client.get(f"/api/sims/{sim_id}/kernels").json()
    assert [kernel["index"] for kernel in page["kernels"]] == list(range(6))
    csv = client.get(f"/api/sims/{sim_id}/kernels.csv")
    assert csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert len(csv.text.splitlines()) == 7
    text = client.get(f"/api/sims/{sim_id}/logs", headers={"Accept": "text/plain"})
    assert text.text.splitlines() == lines


# What is refused, in the one shape.


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/none", 404),
        ("GET", "/api", 404),
        ("GET", "/api/none", 404),
        ("POST", "/a/b/c/d", 404),
        ("DELETE", "/api/health/more", 404),
        ("GET", "/api/sims/sim-000000000000", 404),
        ("PATCH", "/api/runs", 405),
        ("OPTIONS", "/api/runs", 405),
        ("DELETE", "/api/sims/sim-000000000000/heartbeat", 405),
        ("POST", "/api/runs", 422),
        ("PUT", "/api/sims/sim-000000000000/files/a%20b", 422),
    ],
)
def test_an_error_has_a_detail(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert "detail" in answer.json()
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer wrong", "Basic eDp5", "{token}"])
@pytest.mark.parametrize("path", ["/api/runs", "/api/none", "/none"])
def test_without_the_token_nothing_is_told(deployed: Deployed, path: str, authorization: str | None) -> None:
    headers = {"Authorization": authorization.format(token=deployed.token)} if authorization else {}
    answer = httpx.get(deployed.url + path, headers=headers)
    assert (answer.status_code, answer.headers["x-amzn-remapped-www-authenticate"]) == (401, "Bearer")
    assert "detail" in answer.json()


def test_the_token_is_taken_whatever_the_case_of_the_scheme(deployed: Deployed) -> None:
    assert (
        httpx.get(f"{deployed.url}/api/runs", headers={"authorization": f"bEARER {deployed.token}"}).status_code == 200
    )


def test_bytes_that_the_gateway_would_change_are_refused_and_text_is_not(client: httpx.Client, sims: Any) -> None:
    url = f"/api/sims/{next(sims)}/files/a.bin"
    refused = client.put(url, content=b"\xff\xfe\x00", headers={"Content-Type": "text/plain"})
    assert refused.status_code == 415
    assert "application/octet-stream" in refused.json()["detail"]
    assert client.put(url, content="é, \ufffd".encode()).json()["size"] == 7
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # curl --data-binary, if not told otherwise
    assert client.put(url, content=b"\xff\xfe\x00", headers=form).json()["size"] == 3
    zipped = gzip.compress(b"a,b\n" * 100)
    encoded = {"Content-Type": "text/csv", "Content-Encoding": "gzip"}
    assert client.put(url, content=zipped, headers=encoded).status_code == 415


def test_what_is_checked_on_aws_is_checked_here_too(deployed: Deployed) -> None:
    """But for what the emulator does otherwise: it decodes a path too soon, and leaves out headers that a URL asks for."""
    done = deployed.aws.run(
        deployed.checkout, deployed.url, "--quick", module="infra.verify_aws", CASCADE_TOKEN=deployed.token
    )
    wrong = [line for line in done.stdout.splitlines() if not line.endswith(": ok")]
    assert [line.partition(":")[0] for line in wrong] == KNOWN_OTHERWISE, done.stdout
    assert done.returncode == len(wrong)


# The limits of the way, and round them.


def test_a_request_is_answered_on_both_sides_of_lambdas_limit(client: httpx.Client, sims: Any) -> None:
    sim_id = next(sims)

    def send(seq: int, size: int) -> httpx.Response:
        return client.post(f"/api/sims/{sim_id}/logs", json={"seq": seq, "lines": ["x" * size]})

    assert send(0, EVENT_BYTES - 6_000).status_code == 204
    over = send(1, EVENT_BYTES)
    assert over.status_code == 413
    assert "6 MB" in over.json()["detail"]
    assert client.get(f"/api/sims/{sim_id}").json()["log"]["bytes"] >= EVENT_BYTES - 6_000


def test_a_chunk_over_the_limit_goes_through_compressed(client: httpx.Client, sims: Any) -> None:
    sim_id = next(sims)
    body = gzip.compress(json.dumps({"seq": 0, "lines": ["y" * 1000] * 20_000}).encode(), 1)
    for kind, status in (("application/json", 413), ("application/gzip", 204)):
        headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
        if kind == "application/gzip":
            headers.pop("Content-Encoding")
        assert client.post(f"/api/sims/{sim_id}/logs", content=body, headers=headers).status_code == status
    tail = client.get(f"/api/sims/{sim_id}/logs?tail=3").json()
    assert tail["chunks"][0]["lines"] == ["y" * 1000] * 3


@pytest.mark.parametrize("size", [EVENT_BYTES * 3 // 4 + 1000, GATEWAY_BYTES + 1])
def test_a_file_too_large_for_the_way_is_told_the_other_way(client: httpx.Client, sims: Any, size: int) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    answer = client.put(f"/api/sims/{next(sims)}/files/big.bin", content=bytes(size), headers=octets)
    assert answer.status_code == 413
    assert "10 MB" in answer.json()["detail"]
    assert "/uploads" in answer.json()["detail"]


def test_64_mib_by_the_other_way(client: httpx.Client, sims: Any) -> None:
    sim_id, body = next(sims), zlib.compress(b"seed", 0).ljust(64 * MIB, b"\xa5")
    upload = client.post(f"/api/sims/{sim_id}/uploads/big.bin", json={"size": len(body)}).json()
    short = httpx.put(upload["url"], content=body[:-1], headers=upload["headers"], timeout=60)
    assert short.status_code == 403, "the object store takes no other size than was held"
    assert httpx.put(upload["url"], content=body, headers=upload["headers"], timeout=60).status_code == 200
    made = client.post(f"/api/sims/{sim_id}/uploads/big.bin/{upload['id']}")
    assert (made.status_code, made.json()["size"]) == (200, 64 * MIB)
    location = client.get(f"/api/sims/{sim_id}/files/big.bin").headers["location"]
    assert httpx.get(location, timeout=60).content == body
    over = client.post(f"/api/sims/{sim_id}/uploads/big.bin", json={"size": 64 * MIB + 1})
    assert over.status_code == 413


def test_an_upload_that_its_client_leaves_is_ended_by_the_event(client: httpx.Client, sims: Any) -> None:
    sim_id = next(sims)
    upload = client.post(f"/api/sims/{sim_id}/uploads/left.log", json={"size": 5}).json()
    assert httpx.put(upload["url"], content=b"hello", headers=upload["headers"]).status_code == 200
    found = eventually(lambda: client.get(f"/api/sims/{sim_id}/files").json(), "the event ends the upload", 60)
    assert [(file["name"], file["size"]) for file in found] == [("left.log", 5)]


def test_the_client_knows_the_other_way(deployed: Deployed, sims: Any, tmp_path: Path) -> None:
    sim_id, path = next(sims), tmp_path / "big.bin"
    path.write_bytes(bytes(12 * MIB))
    with Client(deployed.url, deployed.token) as cascade:
        assert cascade.upload_file(sim_id, "big.bin", path).size == 12 * MIB
        cascade.download_file(sim_id, "big.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == path.read_bytes()


def test_every_answer_that_grows_fits(client: httpx.Client) -> None:
    """A run of 1,000 sims, a long log, step timing of 40,000 steps."""
    made = client.post("/api/runs", json={"name": "many", "sims": [{"params": {"i": i}} for i in range(1000)]})
    assert made.status_code == 201
    run = client.get(f"/api/runs/{made.json()['id']}")
    assert len(run.json()["sims"]) == 1000
    sim_id = run.json()["sims"][0]["id"]

    for seq in range(4):
        lines = {"seq": seq, "lines": [f'{seq} {i:06d} \\" {"z" * 50}' for i in range(30_000)]}
        zipped = gzip.compress(json.dumps(lines).encode(), 1)
        headers = {"Content-Type": "application/gzip"}
        assert client.post(f"/api/sims/{sim_id}/logs", content=zipped, headers=headers).status_code == 204
    seen, at = 0, 0
    while seen < 4:
        page = client.get(f"/api/sims/{sim_id}/logs?from_seq={at}&limit=100")
        assert page.status_code == 200
        assert page.json()["chunks"], "each page moves on"
        seen += len(page.json()["chunks"])
        at = page.json()["next_seq"] if page.json()["chunks"] else at
        at = page.json()["chunks"][-1]["seq"] + 1
    text = client.get(f"/api/sims/{sim_id}/logs", headers={"Accept": "text/plain"})
    assert text.status_code == 302
    assert len(httpx.get(text.headers["location"], timeout=60).text.splitlines()) == 120_000

    steps = [{"index": i, "wall_ns": 12345.5 + i, "kernels": [i, i + 1], "name": f"step {i}"} for i in range(40_000)]
    steps = [{**step, "note": "n" * 80} for step in steps]
    zipped = gzip.compress(json.dumps({"simulated": {"steps": steps, "summary": {}}}).encode(), 1)
    headers = {"Content-Type": "application/gzip"}
    assert client.post(f"/api/sims/{sim_id}/step-timeline", content=zipped, headers=headers).status_code == 204
    timing = client.get(f"/api/sims/{sim_id}/step-timeline")
    assert timing.status_code == 302
    assert httpx.get(timing.headers["location"], timeout=60).json()["simulated"]["steps"] == steps


# The stack, and what runs by itself.


def test_the_functions_get_the_names_of_the_stack_and_no_token(deployed: Deployed) -> None:
    outputs, functions = deployed.outputs(), deployed.aws.client("lambda")
    for name in (f"cascade-{STAGE}", f"cascade-{STAGE}-sweep", f"cascade-{STAGE}-stored"):
        found = functions.get_function_configuration(FunctionName=name)
        assert found["Environment"]["Variables"] == {
            "CASCADE_TABLE": outputs["TableName"],
            "CASCADE_BUCKET": outputs["BucketName"],
            "CASCADE_TOKEN_SECRET": outputs["SecretArn"],
            "POWERTOOLS_SERVICE_NAME": f"cascade-{STAGE}",
            **stage.CONSTANTS,
            "CASCADE_HEARTBEAT_TIMEOUT_S": TIMEOUT_S,
        }
        assert (found["MemorySize"], found["Timeout"]) == (512, 29)


def test_the_roles_have_exactly_the_policy_of_the_stage(deployed: Deployed) -> None:
    wanted = json.loads((deployed.checkout / f"build/deploy/{STAGE}/.chalice/policy-{STAGE}.json").read_text())
    roles = deployed.aws.client("iam")
    for function in ("api_handler", "sweep", "stored"):
        role = f"cascade-{STAGE}-{function}"
        names = roles.list_role_policies(RoleName=role)["PolicyNames"]
        documents = [roles.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
        assert documents == [wanted]
        assert roles.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []


def test_an_event_that_a_function_fails_on_for_good_lies_in_the_dead_letter_queue(deployed: Deployed) -> None:
    queue, functions = deployed.aws.client("sqs"), deployed.aws.client("lambda")
    event = {"source": "aws.s3", "detail": {"object": {}}, "marker": "broken"}
    functions.invoke(FunctionName=f"cascade-{STAGE}-stored", InvocationType="Event", Payload=json.dumps(event))
    url = queue.get_queue_url(QueueName=deployed.outputs()["DeadLettersArn"].rpartition(":")[2])["QueueUrl"]
    found = eventually(lambda: queue.receive_message(QueueUrl=url).get("Messages"), "a dead letter", 60)
    assert "broken" in found[0]["Body"]


def test_the_scheduled_function_fires_and_marks_a_silent_sim_lost(deployed: Deployed, client: httpx.Client) -> None:
    table = deployed.aws.client("dynamodb")
    key = {"pk": {"S": deployed.silent_sim}, "sk": {"S": "a#hot"}}
    name = deployed.outputs()["TableName"]
    # Looked up in the table: the API derives the state from the clock, whether or not anything has fired.
    stored = lambda: table.get_item(TableName=name, Key=key)["Item"]["state"]["S"] == "lost"  # noqa: E731
    eventually(stored, "the sweep marks the silent sim", 150)
    assert client.get(f"/api/sims/{deployed.silent_sim}").json()["state"] == "lost"
    beat = client.post(f"/api/sims/{deployed.silent_sim}/heartbeat", json={"state": "running"})
    assert beat.json()["state"] == "running"


# Again, from elsewhere, with a change, and away.


def test_a_second_deployment_changes_nothing(deployed: Deployed) -> None:
    functions = deployed.aws.client("lambda")
    before = functions.get_function_configuration(FunctionName=f"cascade-{STAGE}")
    again = deployed.aws.run(deployed.checkout, "deploy", STAGE, CASCADE_HEARTBEAT_TIMEOUT_S=TIMEOUT_S)
    assert again.returncode == 0, again.stdout
    assert f"stack cascade-{STAGE}: nothing to change" in again.stdout
    assert "functions and API: nothing to change" in again.stdout
    assert f"CASCADE_URL={deployed.direct}" in again.stdout
    after = functions.get_function_configuration(FunctionName=f"cascade-{STAGE}")
    assert before["LastModified"] == after["LastModified"]


def test_another_checkout_knows_the_deployment(deployed: Deployed, tmp_path: Path) -> None:
    other = copy_checkout(tmp_path, deployed.checkout)
    again = deployed.aws.run(other, "deploy", STAGE, CASCADE_HEARTBEAT_TIMEOUT_S=TIMEOUT_S)
    assert again.returncode == 0, again.stdout
    assert "functions and API: nothing to change" in again.stdout
    assert f"CASCADE_URL={deployed.direct}" in again.stdout


def test_a_change_is_deployed_and_the_data_stays(deployed: Deployed, client: httpx.Client) -> None:
    run = client.post("/api/runs", json={"name": "stays", "sims": [{}]}).json()
    module = deployed.checkout / "chalicelib" / "openapi.py"
    module.write_text(module.read_text().replace('VERSION = "', 'VERSION = "changed-'))
    done = deployed.aws.run(deployed.checkout, "deploy", STAGE, CASCADE_HEARTBEAT_TIMEOUT_S=TIMEOUT_S)
    assert done.returncode == 0, done.stdout
    assert f"CASCADE_URL={deployed.direct}" in done.stdout
    assert client.get("/api/health").json()["version"].startswith("changed-")
    assert client.get(f"/api/runs/{run['id']}").json() == run
    assert client.get("/api/none").status_code == 404


def test_the_token_is_rotated_without_a_deployment(deployed: Deployed) -> None:
    """A new container reads the new secret; one that runs takes up to five minutes."""
    secrets, functions = deployed.aws.client("secretsmanager"), deployed.aws.client("lambda")
    secret_id = deployed.outputs()["SecretArn"]
    secrets.put_secret_value(SecretId=secret_id, SecretString=f"{deployed.token} next-token")
    name = f"cascade-{STAGE}"
    variables = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": {**variables, "FRESH": "1"}})
    for token in (deployed.token, "next-token"):
        answer = httpx.get(f"{deployed.url}/api/runs", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        assert answer.status_code == 200


def test_a_front_door_is_put_before_it_and_taken_away(deployed: Deployed) -> None:
    aws, s3 = deployed.aws, deployed.aws.client("s3")
    made = aws.run(deployed.checkout, "deploy", STAGE, module="infra.front_door")
    assert made.returncode == 0, made.stdout
    assert "changed\nCASCADE_URL=https://" in made.stdout
    (listed,) = aws.client("cloudfront").list_distributions()["DistributionList"]["Items"]
    config = aws.client("cloudfront").get_distribution_config(Id=listed["Id"])["DistributionConfig"]
    (behaviour,) = config["CacheBehaviors"]["Items"]
    assert (behaviour["PathPattern"], behaviour["TargetOriginId"]) == ("/api/sims/*/files/*", "bucket")
    kinds = [one["EventType"] for one in behaviour["LambdaFunctionAssociations"]["Items"]]
    assert sorted(kinds) == ["origin-request", "origin-response", "viewer-request"]
    bucket = deployed.outputs()["BucketName"]
    statements = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    (allowed,) = [one for one in statements if one["Effect"] == "Allow"]
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceArn": listed["ARN"]}}
    assert (allowed["Action"], allowed["Resource"]) == ("s3:PutObject", f"arn:aws:s3:::{bucket}/files/*")

    again = aws.run(deployed.checkout, "deploy", STAGE, module="infra.front_door")
    assert "nothing to change" in again.stdout
    away = aws.run(deployed.checkout, "remove", STAGE, module="infra.front_door")
    assert away.returncode == 0, away.stdout
    statements = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert [one["Effect"] for one in statements] == ["Deny"]


@pytest.mark.last
def test_destroy_asks_and_then_leaves_nothing(deployed: Deployed) -> None:
    asked = deployed.aws.run(deployed.checkout, "destroy", STAGE, typed="no\n")
    assert asked.returncode == 1
    assert "nothing was removed" in asked.stdout
    with deployed.client() as client:
        assert client.get("/api/health").status_code == 200

    done = deployed.aws.run(deployed.checkout, "destroy", STAGE, typed=f"{STAGE}\n")
    assert done.returncode == 0, done.stdout
    aws = deployed.aws.client
    assert aws("lambda").list_functions()["Functions"] == []
    assert aws("apigateway").get_rest_apis()["items"] == []
    assert aws("dynamodb").list_tables()["TableNames"] == []
    left = [bucket["Name"] for bucket in aws("s3").list_buckets()["Buckets"]]
    assert left == ["cascade-edge-code-000000000000"], "the code of edge functions, whose replicas live on for hours"
    assert aws("events").list_rules()["Rules"] == []
    assert aws("iam").list_roles()["Roles"] == []
    assert aws("logs").describe_log_groups()["logGroups"] == []
    again = deployed.aws.run(deployed.checkout, "destroy", STAGE, "--yes")
    assert again.returncode == 1
    assert again.stdout.strip() == f"error: there is no stack cascade-{STAGE} in us-east-1"


@pytest.mark.last
def test_a_stage_must_have_a_name_that_fits_into_others(deployed: Deployed) -> None:
    refused = deployed.aws.run(deployed.checkout, "deploy", "My_Stage")
    assert refused.returncode == 1
    assert refused.stdout.startswith("error: stage 'My_Stage' must be")


@pytest.mark.last
def test_a_checkout_with_a_broken_app_says_so(deployed: Deployed, tmp_path: Path) -> None:
    broken = copy_checkout(tmp_path / "broken")
    (broken / "app.py").write_text("app = nonsense\n")
    done = deployed.aws.run(broken, "deploy", "broken")
    assert done.returncode == 1
    assert "error: chalice deploy failed" in done.stdout
    assert deployed.aws.run(broken, "destroy", "broken", "--yes").returncode == 0
    shutil.rmtree(broken)
