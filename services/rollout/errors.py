"""Why a ticket cannot be fulfilled."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a ticket was given up, in one word for the metrics."""

    TOO_LONG = "too_long"  # a prompt above its limit, or above what a service can take
    NO_SOLUTION = "no_solution"
    TEMPLATE = "template"
    CRITIQUE = "critique"
    TEACHER_UNKNOWN = "teacher_unknown"
    REFUSED = "refused"  # a service refused it again and again
    UNANSWERED = "unanswered"  # workers died or hung over it


class TicketError(Exception):
    """This ticket can never be fulfilled; the text is the reason on its tombstone."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TicketGoneError(Exception):
    """Nobody wants this ticket any more: done elsewhere, taken over, or its job is over."""
