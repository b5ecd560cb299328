"""The state of files that could not be read."""

from cdc_platform.model.stream.unread import FailedRead, failed_reads, unread_path


def test_pauses_double_up_to_an_hour() -> None:
    """The first failure may be the network's; a file that never can be read costs a try an hour."""
    pauses = [FailedRead("1", 0, "", tries).due_micros // 1_000_000 for tries in (1, 2, 3, 7, 8, 9, 10_000)]
    assert pauses == [30, 60, 120, 1920, 3600, 3600, 3600]


def test_a_clock_that_is_set_back_ends_the_pause() -> None:
    """A pause never becomes longer than it was at its start, even if the clock changes."""
    failure, now_micros = FailedRead("1", 5_000_000_000, ""), 5_000_000_000
    moments = (now_micros - 1, now_micros, now_micros + 29_999_999, now_micros + 30_000_000)
    assert [failure.is_due(moment) for moment in moments] == [True, False, False, True]


def test_tries_count_for_one_version() -> None:
    """Once a file is rewritten, what is wrong with it is something else."""
    first, second, other = FailedRead("1", 5, "a"), FailedRead("1", 6, "b"), FailedRead("2", 7, "c")
    assert FailedRead("1", 6, "b", tries=2) == second.after(first.after(None))
    assert other == other.after(second)


def test_it_survives_as_text() -> None:
    """The read progress stores it under its own path, next to those of files that were read."""
    failure = FailedRead("1-2", 5, "No right to: \u00e9", tries=3)
    assert {"/a b": failure} == failed_reads({"/a": "1", unread_path("/a b"): failure.to_text()})
