"""Fixtures of the Spanner emulator."""
