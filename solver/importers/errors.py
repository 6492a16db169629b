"""What can go wrong while a model is brought in: every error is one sentence that says where and what to do."""

from __future__ import annotations


class ImporterError(ValueError):
    """A model cannot be brought in."""


class UnreadableModelError(ImporterError):
    """The file is missing, damaged, or no model of a kind that is known."""


class UnknownNameError(ImporterError):
    """A dim or an input that was given a size is not in the model."""


class ShapeMismatchError(ImporterError):
    """A shape that was given, or that follows from one, does not fit."""


class DynamicDimError(ImporterError):
    """A dim of an input has no size."""


class UnsupportedNodeError(ImporterError):
    """A node asks for something that no op here does."""


class NoLossError(ImporterError):
    """A model that is to be trained gives no single number to differentiate."""


class BakedBatchError(ImporterError):
    """A size that looks like the batch is written into the model where it cannot be changed with a proof."""
