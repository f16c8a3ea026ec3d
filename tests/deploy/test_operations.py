"""What the operations page says: costs, alarms, and the pages themselves."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.client import BaseClient

from cascade import sample_log
from cascade.serve import resources
from chalicelib import metrics, table
from infra import cost, stage, verify_aws
from tests.aws import Api

ROOT = Path(__file__).resolve().parents[2]


# Costs.


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """DynamoDB operations as they are called."""
    seen: list[str] = []
    call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation: str, request: dict[str, Any]) -> Any:
        seen.append(operation)
        return call(self, operation, request)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return seen


def item_bytes(item: dict[str, Any]) -> int:
    """Size of an item as DynamoDB counts it, near enough."""
    return sum(len(name) + len(str(value).encode()) for name, value in item.items())


def test_a_heartbeat_costs_one_write_unit(api: Api, operations: list[str]) -> None:
    sim_id = api.new_sim()
    operations.clear()
    for _ in range(3):
        api.post(f"/api/sims/{sim_id}/heartbeat", {"state": "running"})
    assert operations == ["UpdateItem"] * 3
    item = table.get(sim_id, "a#hot")
    assert item
    assert item_bytes(item) <= 1024
    used = cost.usage(cost.Fleet(1, beat_seconds=5, chunk_seconds=1e12, sim_hours=1e12))
    assert used.write_units == pytest.approx(used.heartbeats, rel=0.01)


def test_a_chunk_costs_what_the_model_says(api: Api, operations: list[str]) -> None:
    sim_id = api.new_sim()
    api.post(f"/api/sims/{sim_id}/logs", {"seq": 0, "lines": ["first"]})
    operations.clear()
    api.post(f"/api/sims/{sim_id}/logs", {"seq": 1, "lines": ["next"]})
    assert sorted(operations) == ["PutItem", "Query", "UpdateItem"]


def test_kernels_are_as_large_as_the_model_says(api: Api) -> None:
    sim_id = api.new_sim()
    api.post(f"/api/sims/{sim_id}/logs", {"seq": 0, "lines": list(sample_log.generate(kernels=20))})
    pages = list(table.query(sim_id, "k#", "k#~"))
    size = sum(len(page.get("data", b"")) for page in pages) / 20
    assert 0 < size <= cost.Fleet(1).kernel_bytes


def test_the_bill_is_the_sum_of_its_parts_and_follows_the_prices() -> None:
    used = cost.usage(cost.Fleet(1000))
    bill = cost.bill(used, cost.Prices())
    assert bill["total"] == pytest.approx(sum(value for name, value in bill.items() if name != "total"))
    double = cost.bill(used, cost.Prices(write_units_million=2 * cost.Prices().write_units_million))
    assert double["total"] - bill["total"] == pytest.approx(bill["DynamoDB writes"])


def test_twice_the_fleet_costs_twice_but_for_what_stands_still() -> None:
    one, two = (cost.bill(cost.usage(cost.Fleet(n)), cost.Prices())["total"] for n in (1000, 2000))
    assert 1.9 < two / one < 2


def test_prices_are_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    zero = [f"--price={field}=0" for field in cost.Prices.__dataclass_fields__]
    assert cost.main(["--sims", "7", *zero]) == 0
    said = capsys.readouterr().out
    assert "7 sims" in said
    assert "| total, $ | 0.00 |" in said
    with pytest.raises(SystemExit):
        cost.main(["--price", "love=0"])
    assert "--price 'love=0' must be NAME=DOLLARS" in capsys.readouterr().err


# Alarms.


def template() -> dict[str, Any]:
    return dict(yaml.load((ROOT / "infra" / "resources.yaml").read_text(), Loader=resources._TemplateLoader))


def test_alarms_and_dashboard_look_at_metrics_that_the_service_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = stage.config("dev", dict.fromkeys(stage.ENVIRONMENT.values(), "x"))["stages"]["dev"]
    for name, value in variables["environment_variables"].items():
        if name.startswith("POWERTOOLS"):
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("POWERTOOLS_METRICS_DISABLED", raising=False)
    metrics.flush(force=True)
    capsys.readouterr()
    metrics.count("Sweeps")
    metrics.flush(force=True)
    written = json.loads(capsys.readouterr().out)
    assert written["service"] == "cascade-dev"
    (declared,) = written["_aws"]["CloudWatchMetrics"]
    assert (declared["Namespace"], declared["Dimensions"]) == ("Cascade", [["service"]])

    counted = set()
    for path in (ROOT / "chalicelib").glob("*.py"):
        counted |= set(re.findall(r'metrics\.count\(f?"([A-Za-z]+)', path.read_text()))
    counted |= {f"Sims{state}" for state in ("Succeeded", "Failed")}
    looked_at = set()
    for one in template()["Resources"].values():
        if one["Type"] == "AWS::CloudWatch::Alarm" and one["Properties"].get("Namespace") == "Cascade":
            looked_at.add(one["Properties"]["MetricName"])
            assert one["Properties"]["Dimensions"] == [{"Name": "service", "Value": {"Sub": "cascade-${Stage}"}}]
    body = template()["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Sub"]
    for widget in json.loads(re.sub(r"\$\{[^}]*\}", "x", body))["widgets"]:
        names, namespace = widget["properties"]["metrics"], ""
        for entry in names:
            namespace = entry[0] if entry[0] not in (".", "...") else namespace
            if namespace == "Cascade" and entry[0] != "...":
                looked_at.add(entry[1])
    assert looked_at - counted == set()
    assert {"Sweeps", "SweepFailures", "SimsLost"} <= looked_at


def test_every_alarm_says_what_is_wrong_and_tells_somebody() -> None:
    alarms = {n: r for n, r in template()["Resources"].items() if r["Type"] == "AWS::CloudWatch::Alarm"}
    assert len(alarms) >= 6
    for name, alarm in alarms.items():
        properties = alarm["Properties"]
        assert len(properties["AlarmDescription"]) > 20, name
        assert properties["AlarmActions"] == properties["OKActions"] == [{"Ref": "Alarms"}]
        assert properties["TreatMissingData"] == ("breaching" if name == "SweepAgeAlarm" else "notBreaching")


# The pages.


@pytest.mark.parametrize("page", ["operations.md", "aws.md"])
def test_what_a_page_tells_to_type_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "deploy.mk").read_text() + (ROOT / "Makefile").read_text(), re.M)
    )
    for target in re.findall(r"(?:^|`|&& |\.\.\. )make ([a-z-]+)", text, re.M):
        assert target in targets, target
    for module in re.findall(r"python -m (infra\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    for path in re.findall(r"`((?:infra|tests|chalicelib|docs|\.chalice)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_cost_table_of_the_page_is_the_scripts() -> None:
    table_text = cost.table([cost.Fleet(sims) for sims in (10, 1_000, 100_000)], cost.Prices())
    assert table_text in (ROOT / "docs" / "operations.md").read_text()


def test_verify_aws_wants_a_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("CASCADE_TOKEN")
    assert verify_aws.main(["https://example.org"]) == 2
    assert capsys.readouterr().err == "error: set CASCADE_TOKEN to the stage's token\n"
