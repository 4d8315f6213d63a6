"""One stream a victim and purpose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seepage.seeds import stream

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS, st.integers(0, 10**6), st.text(max_size=20))
def test_a_stream_is_a_valid_seed_and_repeats(seed: int, victim: int, purpose: str) -> None:
    drawn = stream(seed, victim, purpose)
    assert 0 <= drawn < 2**63
    assert drawn == stream(seed, victim, purpose)


def test_streams_differ_by_seed_victim_and_purpose() -> None:
    drawn = [stream(s, v, p) for s in range(20) for v in range(20) for p in ("batch", "starts", "baseline")]
    assert len(set(drawn)) == len(drawn)
