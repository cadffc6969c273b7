"""`Ok(value)` or `Failed(error)`: what `try_remote` returns instead of raising."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Ok(Generic[T]):
    """The call returned `value`."""

    value: T


@dataclass(frozen=True)
class Failed:
    """The call failed with `error`, the very exception that `remote` would have raised."""

    error: Exception


Result = Ok[T] | Failed

Ok.__module__ = Failed.__module__ = "agentix"
