"""What is packed for the edge: small enough, whole, and with exactly the rights it uses."""

import io
import json
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib import files
from infra import front_door
from infra.deploy import DeployError
from tests import rights
from tests.aws import TOKEN, Api
from tests.edge.cloudfront import Door

SETTINGS = {"CASCADE_TABLE": "t", "CASCADE_BUCKET": "b", "CASCADE_TOKEN_SECRET": "s", "CASCADE_REGION": "eu-west-1"}

# Refuses every import from outside the package that neither Python nor Lambda's runtime brings.
BARE = """
import sys, json, importlib.abc
RUNTIME = {"boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six", "awscrt"}
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if path is None and top[0] != "_" and top not in RUNTIME and top not in sys.stdlib_module_names and not (FOLDER / top).exists():
            if not any(FOLDER.glob(top + ".*")):
                raise ModuleNotFoundError(name)
from pathlib import Path
FOLDER = Path(sys.argv[1])
sys.path.insert(0, str(FOLDER))
sys.meta_path.insert(0, Refuse())
import importlib
module = importlib.import_module(sys.argv[2])
from chalicelib import settings
print(json.dumps([settings.table_name(), settings.region(), sorted(name for name in dir(module) if "handler" in name or "on_" in name)]))
"""


@pytest.fixture(scope="module")
def packages() -> dict[str, bytes]:
    return {"viewer": front_door.viewer_package(SETTINGS), "origin": front_door.origin_package(SETTINGS)}


def unpacked(package: bytes, folder: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        archive.extractall(folder)
    return folder


def test_the_packages_are_within_the_limits_of_the_edge(packages: dict[str, bytes]) -> None:
    assert len(packages["viewer"]) < 20_000 < front_door.VIEWER_MAX_BYTES
    assert len(packages["origin"]) < 6_000_000 < front_door.ORIGIN_MAX_BYTES


def test_a_package_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(front_door.viewer_package(SETTINGS))
    monkeypatch.setattr(front_door, "VIEWER_MAX_BYTES", size)
    front_door.viewer_package(SETTINGS)
    monkeypatch.setattr(front_door, "VIEWER_MAX_BYTES", size - 1)
    with pytest.raises(DeployError, match="over the limit"):
        front_door.viewer_package(SETTINGS)


def test_the_viewer_package_has_no_library(packages: dict[str, bytes]) -> None:
    names = zipfile.ZipFile(io.BytesIO(packages["viewer"])).namelist()
    assert {name.split("/")[0] for name in names} == {"chalicelib", "infra"}


def test_nothing_packed_is_secret(packages: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(packages["viewer"])) as archive:
        assert json.loads(archive.read("infra/edge/config.json")) == SETTINGS


def test_the_same_code_makes_the_same_package(packages: dict[str, bytes]) -> None:
    assert front_door.viewer_package(SETTINGS) == packages["viewer"]
    assert front_door.origin_package(SETTINGS) == packages["origin"]


def test_other_code_makes_another_version_of_what_holds_it_and_of_nothing_else(packages: dict[str, bytes]) -> None:
    def versions(of: dict[str, bytes]) -> list[str]:
        return sorted(set(re.findall(r"\b\w+Version[0-9a-f]{12}\b", front_door.template(of))))

    before, after = versions(packages), versions({**packages, "viewer": b"other"})
    assert len(before) == len(after) == 3
    assert before[:2] == after[:2]
    assert before[2] != after[2]
    assert before[2].startswith("ViewerVersion")


@pytest.mark.parametrize(("package", "module"), [("viewer", "infra.edge.viewer"), ("origin", "infra.edge.origin")])
def test_a_package_imports_on_a_bare_runtime(
    packages: dict[str, bytes], tmp_path: Path, package: str, module: str
) -> None:
    if package == "origin" and (platform.machine() != "x86_64" or sys.platform != "linux"):
        pytest.skip("the edge runs on x86_64 Linux alone")
    folder = unpacked(packages[package], tmp_path)
    if package == "viewer":
        (folder / "chalicelib" / "settings.py").write_bytes(Path("chalicelib/settings.py").read_bytes())  # to look with
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(folder), module],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": "", "POWERTOOLS_METRICS_DISABLED": "true"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    table, region, names = json.loads(done.stdout)
    assert (table, region) == ("t", "eu-west-1")
    assert set(names) & {"handler", "on_request", "on_response"}


def test_the_template_with_named_versions_is_valid(packages: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "front-door.yaml"
    path.write_text(front_door.template(packages))
    done = subprocess.run([Path(sys.executable).with_name("cfn-lint"), path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# Rights.


class Loader(yaml.SafeLoader):
    """Puts stand-ins for CloudFormation's references."""


def _stand_in(loader: Any, suffix: str, node: Any) -> Any:
    names = {"TableArn": rights.TABLE, "BucketArn": rights.BUCKET, "SecretArn": rights.SECRET}
    text = node.value if isinstance(node.value, str) else ""
    for name, arn in names.items():
        text = arn if text == name else text.replace(f"${{{name}}}", arn)
    return text


Loader.add_multi_constructor("!", _stand_in)


def policy(role: str) -> dict[str, Any]:
    """The role's policy, but for the log that Lambda writes itself."""
    document = yaml.load(front_door.TEMPLATE.read_text(), Loader=Loader)
    (found,) = document["Resources"][role]["Properties"]["Policies"]
    statements = [one for one in found["PolicyDocument"]["Statement"] if one["Sid"] != "Logs"]
    return {"Statement": statements}


def test_the_edge_has_exactly_the_rights_that_it_uses(
    door: Door, cloud_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = {"Authorization": f"Bearer {TOKEN}"}
    # Two files: for one alone the policy's pattern would be more than is used.
    urls = [f"{door.url}/api/sims/{cloud_api.new_sim()}/files/{name}" for name in ("a.csv", "b.csv")]
    before = set(rights.SEEN)
    rights.SEEN.clear()
    for url in urls:
        for _ in range(2):
            assert door.http.put(url, content=b"abc", headers=auth).status_code == 200
        assert door.http.get(url, headers=auth).status_code == 302
        with monkeypatch.context() as patch:
            patch.setattr(files, "_commit", lambda *_: (_ for _ in ()).throw(files.Busy()))
            assert door.http.put(url, content=b"abc", headers=auth).status_code == 503
    used = set(rights.SEEN)
    rights.SEEN.update(before)
    viewer = {need for need in used if need.action.startswith("secretsmanager")}
    assert rights.missing(policy("ViewerRole"), viewer) == set()
    assert rights.unused(policy("ViewerRole"), viewer) == set()
    assert rights.missing(policy("OriginRole"), used - viewer) == set()
    assert rights.unused(policy("OriginRole"), used - viewer) == set()
    assert rights.missing(policy("ViewerRole"), used), "each has its own"
