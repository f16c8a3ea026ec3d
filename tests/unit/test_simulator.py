"""A warden's process ids are good on its own machine only."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cascade.worker import warden
from cascade.worker.process import Simulator


@pytest.mark.parametrize("here", [True, False])
def test_no_process_of_another_machine_is_signalled(tmp_path: Path, here: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as process:
        host = os.uname().nodename if here else "another"
        status = {
            "warden": process.pid,
            "host": host,
            "simulator": process.pid,
            "simulator_started": warden.start_time(process.pid),
        }
        (tmp_path / "status").write_text(json.dumps(status))
        with (tmp_path / "warden.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            simulator = Simulator(tmp_path)
            simulator.stop()
            if not here:
                simulator.kill_leftover()
            process.communicate(b"\n")
    assert (process.returncode == 0) is not here


def test_a_process_that_has_the_id_of_a_simulator_long_gone_is_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as process:
        status = {
            "warden": 1,
            "host": os.uname().nodename,
            "simulator": process.pid,
            "simulator_started": "1",
        }
        (tmp_path / "status").write_text(json.dumps(status))
        Simulator(tmp_path).kill_leftover()
        process.communicate(b"\n")
    assert process.returncode == 0
