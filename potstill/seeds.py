"""Seeds that follow from where they are used."""

from __future__ import annotations

import hashlib

SEED_BITS = 53  # exact in JSON everywhere


def derived_seed(*parts: int | str) -> int:
    """A seed for every place, the same on every machine and with every library version."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)
