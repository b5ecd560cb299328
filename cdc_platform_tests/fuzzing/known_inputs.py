"""Inputs that have once stopped a decoder."""

from base64 import b64decode
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def corpus(name: str) -> list[bytes]:
    """Return what has once been found to stop a decoder: a file a decoder, in base64, an input a line."""
    path = CORPUS / f"{name}.txt"
    return [b64decode(text) for text in path.read_text().splitlines()] if path.exists() else []
