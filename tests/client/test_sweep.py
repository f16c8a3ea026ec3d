"""The sims of a new run and their names, without a server."""

from pathlib import Path
from typing import Any

import click
import pytest

from cascade.sweep import named, of_file, product


def names(*params: str) -> list[str | None]:
    return [sim.get("name") for sim in product(params)]


def test_a_name_holds_the_parameters_that_vary() -> None:
    assert names("a=1,2", "b=x") == ["a=1", "a=2"]
    assert names("a=1,2", "b=x,y") == ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]
    assert names("a=1", "b=x") == ["a=1 b=x"]
    assert names() == [None]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ("/t/gemm/kernelslist.g,/t/conv/kernelslist.g", ["gemm/kernelslist.g", "conv/kernelslist.g"]),
        ("/t/gemm,/t/conv", ["gemm", "conv"]),
        ("/t/gemm/,/t/conv/", ["gemm", "conv"]),
        ("a/x,b/x", ["a/x", "b/x"]),
        ("a/x,x", ["a/x", "x"]),  # short, they would be the same
        ("/a/x,b/a/x", ["/a/x", "b/a/x"]),
        ("/,x", ["/", "x"]),
        ("1/2,3/4", ["2", "4"]),
    ],
)
def test_a_path_is_shown_by_what_tells_it_from_the_others(values: str, shown: list[str]) -> None:
    assert names(f"t={values}") == [f"t={text}" for text in shown]
    assert [sim["params"]["t"] for sim in product([f"t={values}"])] == values.split(",")


def test_names_of_a_file_are_made_in_the_same_way() -> None:
    sims: list[dict[str, Any]] = [
        {"params": {"l2": 1, "on": True, "same": "s"}},
        {"name": "mine", "params": {"l2": 2, "on": 1, "same": "s"}},
        {"params": {"l2": 2, "on": True, "same": "s", "more": [1, 2]}},
        {},
    ]
    assert [sim.get("name") for sim in named(sims[:2])] == ["l2=1 on=true", "mine"]
    assert [sim.get("name") for sim in named(sims[:3])] == ["l2=1 on=true", "mine", "l2=2 on=true more=[1, 2]"]
    assert "name" not in named(sims)[3]
    assert len(named([{"params": {"a": "x" * 500}}])[0]["name"]) == 200


def test_a_file_of_values_has_comments_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("# these\n\n  gemm  \n\t# not this\nconv #1\n")
    assert [sim["params"]["t"] for sim in product([f"t=@{tmp_path}/v.txt"])] == ["gemm", "conv #1"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (["a="], "--param a has no value"),
        (["a=1,,2"], "--param a=1,,2: value 2 is empty"),
        (["a=1,"], "value 2 is empty"),
        (["a= , "], "value 1 is empty"),
        (["a=1,2,1"], "--param a: 1 comes twice"),
        (["a=@{0}/empty.txt"], "empty.txt has no value"),
        (["a=@{0}/twice.txt"], "--param a: x comes twice"),
        (["a=@"], "Is a directory"),
    ],
)
def test_a_value_that_is_empty_or_comes_twice_is_refused(tmp_path: Path, params: list[str], words: str) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n\n")
    (tmp_path / "twice.txt").write_text("x\ny\nx\n")
    with pytest.raises(click.ClickException) as error:
        product([param.format(tmp_path) for param in params])
    assert words in error.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {params: {when: 2024-01-01}}", "sim 0"),
        ("- {}\n- {params: {a: .nan}}", "sim 1"),
        ("- {params: [1]}", "no object"),
        ("- {1: 2}", "not 1"),
    ],
)
def test_a_file_with_what_the_api_cannot_hold_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(click.ClickException) as error:
        of_file(tmp_path / "s.yaml")
    assert "s.yaml" in error.value.message
    assert words in error.value.message
    assert "\n" not in error.value.message
