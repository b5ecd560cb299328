"""Properties that are computed once for each object."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_platform.model.base.cached_values import cached_value


class Place:
    """A place whose state is expensive."""

    computations = 0
    may_compute: threading.Event | None = None

    @cached_value
    def state(self) -> int:
        """State of the place."""
        self.computations += 1
        if self.may_compute is not None:
            self.may_compute.wait()
        if self.computations == 0:
            raise LookupError
        return self.computations


def test_a_value_is_computed_once_until_it_is_taken_out() -> None:
    """Threads of one object share it; it has the text of its function, and is an entry of the object."""
    place = Place()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: place.state, range(20))) == [1] * 20
    assert place.__dict__ == {"computations": 1, "state": 1}
    assert pickle.loads(pickle.dumps(place)).state == 1  # noqa: S301  just made
    del place.__dict__["state"]
    assert place.state == 2
    assert Place.state.__doc__ == "State of the place."


def test_no_object_waits_for_another_one() -> None:
    """A value that never arrives blocks no other value."""
    slow, quick = Place(), Place()
    slow.may_compute = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: slow.state)
        while not slow.computations:
            pass
        assert quick.state == 1
        slow.may_compute.set()
        assert waiting.result() == 1


def test_a_failure_is_no_value() -> None:
    """It is computed again when it is asked for again."""
    place = Place()
    place.computations = -1
    with pytest.raises(LookupError):
        _ = place.state
    assert place.state == 1
