"""What the worker says of a log, and when it calls a run a success."""

from pathlib import Path

import pytest

from cascade.sample_log import SampleLog
from cascade.worker.process import Exit
from cascade.worker.story import Story, count_kernels

LAST_LINE = "GPGPU-Sim: *** exit detected ***"


def told(tmp_path: Path, lines: list[str], expected: int | None = None) -> tuple[str, str | None]:
    """The verdict on a log whose simulator ended with exit code 0."""
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    story = Story(tmp_path / "log", expected)
    story.finish()
    return story.judge(Exit(0), "accel-sim")


def sample(kernels: int) -> list[str]:
    return list(SampleLog(kernels=kernels, seed=3).lines())


@pytest.mark.parametrize(
    ("lines", "expected", "reason"),
    [
        (
            ["hello"],
            None,
            "exit code 0, but nothing in the log is Accel-Sim's: no header, no kernel launched, no last line "
            f"`{LAST_LINE}` (for another simulator: --success exit-code); 0 kernels finished",
        ),
        (
            [line for line in sample(1) if line != LAST_LINE],
            None,
            f"exit code 0, but the log stops after 1 kernel, without the simulator's last line `{LAST_LINE}`; "
            "1 kernel finished",
        ),
        (sample(2), 0, "exit code 0, but the trace's kernel list names no kernel; 2 kernels finished"),
        (sample(1), 2, "exit code 0, but not every kernel of the list was launched; 1 of 2 kernels finished"),
        (sample(2), 1, "exit code 0, but more kernels ran than the trace's kernel list names; 2 of 1 kernel finished"),
    ],
)  # fmt: skip
def test_the_reason_says_what_is_missing(tmp_path: Path, lines: list[str], expected: int | None, reason: str) -> None:
    assert told(tmp_path, lines, expected) == ("failed", reason)


def test_an_empty_list_and_no_kernel_is_a_success_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "kernelslist.g").write_text("")
    assert count_kernels(["accel-sim.out", "-trace", str(tmp_path)]) == 0
    assert told(tmp_path, [sample(1)[0], LAST_LINE], 0) == (
        "succeeded",
        "no kernel ran: the trace's kernel list is empty",
    )


def test_only_the_part_of_the_last_attempt_counts(tmp_path: Path) -> None:
    first = "\n".join(line for line in sample(3) if line != LAST_LINE) + "\n"
    (tmp_path / "log").write_text(first + "\n".join(sample(2)))
    story = Story(tmp_path / "log", 2, start=len(first))
    story.finish()
    assert story.judge(Exit(0), "accel-sim") == ("succeeded", None)
    assert story.progress() == "2 of 2 kernels finished"
