"""Data sets: rows from a file or a hub, and the problems they are read as."""

from potstill.data.errors import FILE, DataError
from potstill.data.problems import load_problems

__all__ = ["FILE", "DataError", "load_problems"]
