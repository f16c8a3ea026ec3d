"""A chunk that others waited for: whoever dies on the way, its retry alone makes the log whole."""

from contextlib import suppress
from typing import Any

import pytest

from tests.aws import Api
from tests.contract.test_logs import CHUNKS, kernels, parsed, send
from tests.model.faults import Died, dies_at


@pytest.mark.in_process
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 14))
def test_the_retry_of_a_chunk_that_filled_a_gap_parses_what_waited_behind_it(api: Api, call: int, when: Any) -> None:
    sim = api.new_sim()
    for seq, lines in enumerate(CHUNKS):
        if seq != 1:
            send(api, sim, seq, lines)
    with suppress(Died), dies_at(call, when):
        send(api, sim, 1, CHUNKS[1])
    # Nothing else is ever sent, and no sweep comes.
    send(api, sim, 1, CHUNKS[1])
    assert kernels(api, sim) == parsed()
