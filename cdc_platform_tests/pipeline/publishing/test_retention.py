"""The past cuts that stay readable."""

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.pipeline.publishing.expiry import kept_moments, max_moments_kept

SECOND = 1_000_000
DAY_S = 86_400
QUARTER = 900 * SECOND


def kept_of(ages_s: list[int], now_s: int = 10 * DAY_S) -> list[int]:
    """Return the ages that stay with the platform's own settings, youngest first."""
    moments = [(now_s - age) * SECOND for age in ages_s]
    return sorted(now_s - moment // SECOND for moment in kept_moments(moments, now_s * SECOND, 600, DAY_S))


def test_old_moments_get_fewer() -> None:
    """All of ten minutes stay, then the first of each minute, then that of each quarter; none is older."""
    minutes = [660, 720, 1200]
    assert [*range(0, 601, 3), *minutes] == kept_of([*range(0, 601, 3), *minutes, 659, 658, 1198])
    assert kept_of([3600, 3599, 3601, 4500, 4497, 4000, 5400, 5399]) == [3600, 4500, 5400]
    assert kept_of([DAY_S, DAY_S + 1, DAY_S - 1]) == [DAY_S]


@given(st.sets(st.integers(1, 2 * DAY_S), max_size=60), st.sampled_from((0, 59, 3600, 5000, DAY_S)))
def test_what_stays_has_a_bound(ages_s: set[int], last_s: int) -> None:
    """No more thinned-out moments than the stated maximum stay, for any number of moments."""
    now_s = 10 * DAY_S
    every_second = [(now_s - age) * SECOND for age in (*ages_s, *range(1, 2 * DAY_S, 29))]
    assert max_moments_kept(last_s) >= len(kept_moments(every_second, now_s * SECOND, 0, last_s))


def test_no_moment_outlives_the_last() -> None:
    """Where less is kept than every moment would be, that counts."""
    assert {60 * SECOND} == kept_moments([SECOND, 60 * SECOND], 90 * SECOND, every_s=600, last_s=40)


@given(
    ages_s=st.sets(st.integers(0, DAY_S // 2), max_size=60),
    later_s=st.integers(0, DAY_S // 2),
    now_s=st.integers(10 * DAY_S, 10 * DAY_S + 900),
)
def test_what_stays_has_always_stayed(ages_s: set[int], later_s: int, now_s: int) -> None:
    """A moment that was given up is never requested again."""
    moments = [(now_s - age) * SECOND for age in ages_s]
    now = kept_moments(moments, now_s * SECOND, 600, DAY_S)
    assert kept_moments(moments, (now_s + later_s) * SECOND, 600, DAY_S) <= now


@given(ages_s=st.sets(st.integers(0, DAY_S - 901), max_size=200))
def test_some_moment_stays_near_each(ages_s: set[int]) -> None:
    """Of each moment that was ever there, one of the same quarter of an hour stays."""
    now = 10 * DAY_S * SECOND
    moments = [now - age * SECOND for age in ages_s]
    moments_kept = kept_moments(moments, now, 600, DAY_S)
    assert {moment // QUARTER for moment in moments} == {moment // QUARTER for moment in moments_kept}
