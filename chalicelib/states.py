"""The one table of sim states, and what silence makes of them."""

from typing import Literal

State = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost"]

STATES: tuple[State, ...] = ("queued", "running", "succeeded", "failed", "cancelled", "lost")

SIM_TRANSITIONS: dict[State, frozenset[State]] = {
    "queued": frozenset({"running", "succeeded", "failed", "cancelled"}),
    "running": frozenset({"succeeded", "failed", "cancelled", "lost"}),
    "lost": frozenset({"running", "succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

FINAL: frozenset[State] = frozenset(s for s, targets in SIM_TRANSITIONS.items() if not targets)


def sources(target: State) -> tuple[State, ...]:
    """The states from which `target` may be reached, in table order."""
    return tuple(s for s in STATES if target in SIM_TRANSITIONS[s])


def observed(stored: State, last_beat_us: int | None, now_us: int, timeout_us: int) -> State:
    """The state a reader is told: a stored `running` that was silent for longer than the timeout is `lost`.

    Exactly `timeout_us` of silence is still alive.
    """
    if stored == "running" and last_beat_us is not None and now_us - last_beat_us > timeout_us:
        return "lost"
    return stored
