"""What is sent to Lambda: what it needs, for its processor, and nothing the runtime has."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import bench_coldstart
from infra import stage

LIMIT_BYTES = 8_000_000


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(bench_coldstart.package(tmp_path_factory.mktemp("package"), local=False)) as opened:
        yield opened


def test_it_is_small_and_has_nothing_that_the_runtime_has(package: zipfile.ZipFile) -> None:
    assert sum(info.compress_size for info in package.infolist()) < LIMIT_BYTES
    tops = {name.split("/")[0] for name in package.namelist()}
    assert {"app.py", "chalice", "chalicelib", "pydantic", "aws_lambda_powertools"} <= tops
    assert not tops & {"boto3", "botocore", "s3transfer", "cascade", "tests", "infra", "numpy", "moto", "ministack"}
    assert "chalice/cli/__init__.py" not in package.namelist()


def test_compiled_libraries_are_for_arm64(package: zipfile.ZipFile) -> None:
    libraries = [name for name in package.namelist() if name.endswith(".so")]
    assert libraries
    for name in libraries:
        machine = package.read(name)[18:20]
        assert int.from_bytes(machine, "little") == 183, f"{name} is not for AArch64"


def test_each_module_has_its_byte_code(package: zipfile.ZipFile) -> None:
    names = set(package.namelist())
    tag = sys.implementation.cache_tag
    for name in names:
        if name.endswith(".py") and ".data/" not in name:
            path = Path(name)
            assert str(path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc") in names, name


def test_byte_code_is_taken_without_a_look_at_the_source(package: zipfile.ZipFile) -> None:
    """Lambda may set other times on files than they had, which would make Python compile them again each time."""
    flags = package.read(f"chalicelib/__pycache__/sims.{sys.implementation.cache_tag}.pyc")[4:8]
    assert int.from_bytes(flags, "little") == 0b01


def test_what_is_pinned_is_within_what_the_project_was_tried_with() -> None:
    pins = [line for line in (stage.ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    project = (stage.ROOT / "pyproject.toml").read_text()
    for pin in pins:
        name = pin.partition(">")[0].partition("=")[0]
        assert f'"{name}' in project, f"{name} is not tried by any test"


def test_importing_the_app_leaves_out_what_few_requests_need() -> None:
    code = "import app, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=stage.ROOT,
        env={**bench_coldstart.environment(), "CASCADE_TOKEN": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    late = {
        "boto3",
        "s3transfer",
        "aws_lambda_powertools",
        "chalicelib.accelsim",
        "numpy",
        "httpx",
    }
    assert not loaded & late


def test_the_collector_is_on_after_the_import_and_leaves_alone_what_was_imported() -> None:
    code = "import app, gc; print(gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=stage.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
