"""Libraries that only some users install."""

from importlib import import_module
from typing import Any

from cdc_platform.errors import LibraryMissing


def optional_library(name: str, extra: str) -> Any:
    """Return a library that an extra of the package installs.

    Raises:
        LibraryMissing: it is not installed.
        KeyboardInterrupt: the user stopped the command while the library was loading.
    """
    try:
        return import_module(name)
    except ImportError as error:
        # pybind11 reports whatever interrupts the initialisation of a module as an ImportError.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        message = f"`{name}` is not installed: {install_command(extra)} ({error})"
        raise LibraryMissing(message) from error


def install_command(extra: str) -> str:
    """Return the command that installs an extra of the package."""
    return f"pip install 'cdc_platform[{extra}]'"
