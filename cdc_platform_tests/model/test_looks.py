"""Asking the source for its past schema."""

from cdc_platform.model.looks import Look, PastLooks


def test_a_moment_is_asked_for_once() -> None:
    """Several columns of one moment cost one question."""
    asked: list[int] = []

    def tell(micros: int) -> Look:
        asked.append(micros)
        return Look(micros, (), {}, {})

    looks = PastLooks(tell)
    assert [looks(micros).micros for micros in (5, 6, 5)] == [5, 6, 5]
    assert asked == [5, 6]


def test_what_is_forgotten_is_not_asked_for_again() -> None:
    """Once the source does not tell a moment any more, no other one is asked for; what is known stays so."""
    asked: list[int] = []

    def tell(micros: int) -> Look:
        asked.append(micros)
        return Look(micros, (), {}, {}, is_exact=micros == 9)

    looks = PastLooks(tell)
    assert [looks(micros).is_exact for micros in (9, 1, 2, 9)] == [True, False, False, True]
    assert asked == [9, 1]
