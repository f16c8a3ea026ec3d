"""The contract tests of tests/contract/, the very same functions, over HTTP against a deployed stage.

Taken is each test that speaks only through `api` or `lambda_api` and its parameters: no clock to turn, nothing patched. A
test, or one value of its parameters, that looks inside all the same or can't hold behind API Gateway is marked
`in_process` where it stands.

By hand, against a stage on AWS; the runs that the tests make there are deleted:

    CASCADE_TOKEN=... pytest tests/deploy/test_contract.py --url https://...
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests import aws, contract
from tests.aws import Api
from tests.deploy.http_api import HttpApi

pytestmark = pytest.mark.slow

APIS = {"api", "lambda_api"}
INSIDE = (
    "chalicelib",
    "tests.contract.counting",
    "tests.contract.faults",
    "tests.contract.stored",
    "tests.model.faults",
)
"""What reaches around the API."""

DECODES = "ministack decodes a path before it looks for the route, so that what is encoded twice, or a slash, makes another path"
KNOWN_OTHERWISE = {
    "test_names_that_do_not_fit_are_422[[]*%2F*]": DECODES,
    "test_no_file_name_leaves_its_place_or_splits_a_header[[]*%2f*]": DECODES,
    "test_no_file_name_leaves_its_place_or_splits_a_header[[]%25*]": DECODES,
}
"""Tests that ministack answers otherwise than API Gateway, as patterns of their names; each fails."""


# Which tests.


def modules() -> list[ModuleType]:
    names = sorted(found.name for found in pkgutil.iter_modules(contract.__path__) if found.name.startswith("test_"))
    return [importlib.import_module(f"tests.contract.{name}") for name in names]


def short_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def functions_of(module: ModuleType) -> dict[str, Callable[..., None]]:
    return {name: test for name, test in vars(module).items() if name.startswith("test_")}


def marks(test: Callable[..., None], name: str) -> list[pytest.Mark]:
    return [mark for mark in getattr(test, "pytestmark", []) if mark.name == name]


def fixtures(test: Callable[..., None]) -> set[str]:
    """What a test asks for beside the values of its parameters."""
    given: set[str] = set()
    for mark in marks(test, "parametrize"):
        names = mark.args[0]
        given |= {name.strip() for name in names.split(",")} if isinstance(names, str) else set(names)
    return set(inspect.signature(test).parameters) - given


def is_taken(test: Callable[..., None]) -> bool:
    return bool(fixtures(test)) and fixtures(test) <= APIS and not marks(test, "in_process")


def taken(module: ModuleType) -> dict[str, Callable[..., None]]:
    return {name: test for name, test in functions_of(module).items() if is_taken(test)}


for _module in modules():
    if _tests := taken(_module):
        _class = "Test" + short_name(_module).removeprefix("test").title().replace("_", "")
        globals()[_class] = type(_class, (), {name: staticmethod(test) for name, test in _tests.items()})


# How they run.


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> tuple[str, str]:
    """URL and token."""
    url = request.config.getoption("--url", None)
    if url:
        assert aws.GIVEN_TOKEN, "set CASCADE_TOKEN to the stage's token"
        return url.rstrip("/"), aws.GIVEN_TOKEN
    deployed = request.getfixturevalue("deployed")
    return deployed.url, deployed.token


@pytest.fixture
def client(request: pytest.FixtureRequest, stage: tuple[str, str]) -> Iterator[HttpApi]:
    made = HttpApi(*stage)
    yield made
    if request.config.getoption("--url", None):
        made.clean()  # the local AWS is thrown away


@pytest.fixture
def api(client: HttpApi) -> Api:
    """What follows redirects, as clients do, gets what the local server answers at once."""
    client.follows = True
    return client


@pytest.fixture
def lambda_api(client: HttpApi) -> Api:
    """What sees the redirects."""
    return client


@pytest.fixture(autouse=True)
def known_otherwise(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--url", None) is None:
        for pattern, reason in KNOWN_OTHERWISE.items():
            if fnmatchcase(request.node.name, pattern):
                request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


# That they are many, and the right ones.


def test_the_contract_is_run_here() -> None:
    here = sum(len(taken(module)) for module in modules())
    # Functions, each with its parameters. It is no share of all: those that look inside may be added at will.
    assert here >= 130
    collected = [name for name in globals() if name.startswith("Test")]
    assert here == sum(len(functions_of(globals()[name])) for name in collected)


@pytest.mark.parametrize("module", modules(), ids=short_name)
def test_every_module_of_the_contract_is_run_here_or_cannot_be(module: ModuleType) -> None:
    tests = functions_of(module).values()
    assert tests
    assert taken(module) or all(looks_inside(test) or not fixtures(test) <= APIS for test in tests)


def names(code: CodeType) -> set[str]:
    """Names that code or a function inside it looks up."""
    return set(code.co_names).union(*(names(one) for one in code.co_consts if isinstance(one, CodeType)))


def looks_inside(test: Any) -> set[str]:
    """What a test, or a function of the contract tests that it calls, uses of INSIDE."""
    found, seen, todo = set(), set(), [test]
    while todo:
        function = todo.pop()
        seen.add(function)
        for name in names(function.__code__):
            value = function.__globals__.get(name)
            home = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
            if home.startswith(INSIDE):
                found.add(name)
            elif isinstance(value, FunctionType) and home.startswith("tests.contract.") and value not in seen:
                todo.append(value)
    return found


@pytest.mark.parametrize("module", modules(), ids=short_name)
def test_what_looks_inside_says_so(module: ModuleType) -> None:
    unmarked = {name: found for name, test in taken(module).items() if (found := looks_inside(test))}
    assert unmarked == {}, "mark them in_process"


def test_looking_inside_is_found_in_helpers_and_inner_functions_too() -> None:
    from tests.contract import test_faults, test_files, test_logs

    assert looks_inside(test_faults.check) >= {"versions", "table"}  # by everything() and objects() of another module
    assert "files" in looks_inside(test_files.test_a_put_waits_for_room_that_another_holds)
    assert looks_inside(test_logs.test_kernels_are_what_the_simulator_printed) == set()
