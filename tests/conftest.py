"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says something about the machine's load, not about the code.
settings.register_profile("potstill", deadline=None)
settings.load_profile("potstill")
