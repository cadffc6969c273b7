"""`Ok`, `Failed` and the `Result` union."""

import copy
import dataclasses
import pickle

import pytest

from agentix import Failed, Ok, Result


def describe(result: Result[int]) -> str:
    match result:
        case Ok(value):
            return f"ok {value}"
        case Failed(error):
            return f"failed {error}"


def test_match() -> None:
    assert describe(Ok(3)) == "ok 3"
    assert describe(Failed(ValueError("no"))) == "failed no"


def test_fields() -> None:
    error = ValueError("no")
    assert Ok(3).value == 3
    assert Failed(error).error is error
    assert Ok(3) == Ok(3) != Ok(4)
    assert repr(Ok(3)) == "Ok(value=3)"


@pytest.mark.parametrize("result", [Ok(3), Failed(ValueError("no"))])
def test_frozen_dataclass(result: Result[int]) -> None:
    assert dataclasses.is_dataclass(result)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.value = 4  # type: ignore[misc,union-attr]


def test_subscriptable() -> None:
    assert "int" in str(Result[int])


def test_copies() -> None:
    assert pickle.loads(pickle.dumps(Ok([1]))) == Ok([1])
    assert copy.deepcopy(Ok([1])) == Ok([1])
