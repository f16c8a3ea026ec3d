"""The study of host models says what the documentation claims of it."""

from benchmarks.bench_hostqueue import MODELS, TIE, study


def test_scaled_gaps_is_the_best_or_tied_in_each_case() -> None:
    for case, errors in study(seed=1, decode_steps=6).items():
        assert set(errors) == set(MODELS)
        assert errors["scaled-gaps"] <= min(errors.values()) + TIE, case
