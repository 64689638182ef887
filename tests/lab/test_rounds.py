from __future__ import annotations

import pytest

from sooner.errors import InputError
from sooner.lab import balance, best_lengths, simulate_rounds
from sooner.plan.formulas import expected_tokens


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.7, 0.9, 1.0])
def test_simulated_rounds_agree_with_the_formula(alpha: float) -> None:
    for k in (1, 4, 8):
        estimate = simulate_rounds(alpha, k, 100_000, seed=k)
        assert estimate.off(expected_tokens(alpha, k)) < 4


def test_best_lengths_at_a_tenth() -> None:
    found = best_lengths((0.5, 0.6, 0.7, 0.8, 0.9), 0.1)
    assert [(b.length, round(b.speedup, 2), round(b.ceiling, 1)) for b in found] == [
        (2, 1.46, 2.0), (3, 1.67, 2.5), (4, 1.98, 3.3), (6, 2.47, 5.0), (10, 3.43, 10.0)
    ]  # fmt: skip


def test_a_round_pays_or_not() -> None:
    assert balance(10, 16, 3.2).speedup == pytest.approx(2.0)
    assert round(balance(10, 16, 1.2).token_ms, 1) == 13.3
    assert balance(8, 20, 2).speedup < 1 < balance(8, 20, 4).speedup
    whole = balance(8, 20, 4, prefill_ms=500, answer=50)
    assert whole.speedup == pytest.approx(1.6)
    assert whole.end_to_end == pytest.approx(900 / 750)


def test_limits() -> None:
    with pytest.raises(InputError, match="rounds"):
        simulate_rounds(0.5, 4, 1)
    with pytest.raises(InputError, match="acceptance rate"):
        simulate_rounds(1.5, 4)
    with pytest.raises(InputError, match="above 0"):
        balance(0, 20, 2)
