"""What an argument of the simulator's command becomes where the simulator runs."""

from pathlib import Path

import pytest

from cascade.worker.command import CommandError, files, resolve
from cascade.worker.story import count_kernels

SCRIPT = f"echo begin; {'x=value_of_a_variable; ' * 15}cat /dev/null"


def test_what_names_a_file_becomes_absolute_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    assert resolve(["/bin/sh", "./traces", "traces", "a/b"], tmp_path)[1:] == [f"{tmp_path}/traces", "traces", "a/b"]


@pytest.mark.parametrize("argument", [SCRIPT, "/" + "d/" * 3000, "a/b\0c", "/\udcff"])
def test_an_argument_that_can_be_no_path_stays_as_it_is(tmp_path: Path, argument: str) -> None:
    assert resolve(["/bin/sh", "-c", argument], tmp_path)[2] == argument
    assert count_kernels(["-trace", argument]) is None


@pytest.mark.parametrize("name", ["f" * 300, "a\0b"])
def test_a_program_or_a_copy_that_can_be_no_path_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match="no such program"):
        resolve([f"./{name}"], tmp_path)
    with pytest.raises(CommandError, match="no such file to copy"):
        files([name], tmp_path)
