"""Errors that a user can act on: each names the value, the limit and the remedy in one line."""


class SoonerError(Exception):
    """Base of every error that the user can mend. The CLI prints it as one line and exits with code 2."""


class InputError(SoonerError, ValueError):
    """A request or an option is not acceptable: out of range, unknown, or contradicting another."""


class ModelError(SoonerError):
    """A model's files cannot be used: missing, truncated, unsupported, or not what they claim to be."""


class DrafterError(SoonerError):
    """A drafter broke its contract (see `sooner.draft.protocol`)."""


class CapacityError(SoonerError):
    """Cache pages ran out."""
