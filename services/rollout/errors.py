"""Why a ticket cannot be fulfilled."""

from __future__ import annotations


class TicketError(Exception):
    """This ticket can never be fulfilled; the text is the reason on its tombstone."""


class TicketGoneError(Exception):
    """Nobody wants this ticket any more: done elsewhere, taken over, or its job is over."""
