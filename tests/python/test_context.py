"""The ambient context: what is set, what goes along, and what the other end makes of it."""

import asyncio
import contextvars
import pickle
import threading

import pytest
from fresh import python

from agentix import _ambient, context


@pytest.fixture(autouse=True)
def _clean():
    context.clear()
    yield
    context.clear()


def carried() -> dict:
    data = _ambient.capture()
    return {} if data is None else pickle.loads(data)


def in_new_context(function, *args):
    return contextvars.Context().run(function, *args)


def test_nothing_is_sent_when_nothing_is_set() -> None:
    assert context.get("agx") is None
    assert context.get("agx", 3) == 3
    assert context.snapshot() == {}
    assert _ambient.capture() is None


def test_set_get_clear() -> None:
    context.set(a=1)
    context.set(b=[2])
    assert (context.get("a"), context.get("b")) == (1, [2])
    assert context.snapshot() == {"a": 1, "b": [2]}
    context.clear()
    assert context.snapshot() == {}
    assert _ambient.capture() is None


def test_scope_is_undone_also_after_an_error() -> None:
    context.set(a=1)

    def body() -> None:
        with context.scope(a=2, b=3) as values:
            assert values == {"a": 2, "b": 3}
            assert context.get("a") == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert context.snapshot() == {"a": 1}


def test_variables_are_one_per_name_and_travel() -> None:
    variable = context.var("agx_tenant", default="none")
    assert context.var("agx_tenant", default="other") is variable
    assert variable.get() == "none"
    assert context.get("agx_tenant") is None
    assert carried() == {}
    with context.scope(agx_tenant="t1"):
        assert variable.get() == "t1"
        assert carried() == {"agx_tenant": "t1"}
    assert variable.get() == "none"
    variable.set("t2")
    assert context.get("agx_tenant") == "t2"
    assert carried() == {"agx_tenant": "t2"}
    context.clear()
    assert variable.get() == "none"
    assert carried() == {}


def test_what_is_entered_is_read() -> None:
    known = context.var("agx_known", default=0)

    def target() -> tuple:
        _ambient.enter({"a": 1, "agx_known": 7, "agx_late": 8, "agentix.unheard-of": object()})
        late = context.var("agx_late", default=0)
        return context.get("a"), known.get(), late.get(), context.get("agx_known"), context.get("nothing")

    assert in_new_context(target) == (1, 7, 8, 7, None)
    assert (context.get("a"), known.get()) == (None, 0)


def test_tasks_and_threads_do_not_mix() -> None:
    async def task(n: int) -> object:
        context.set(n=n)
        await asyncio.sleep(0.01)
        return context.get("n")

    async def main() -> list:
        return await asyncio.gather(*(task(n) for n in range(20)))

    assert asyncio.run(main()) == list(range(20))
    seen = []
    context.set(n="here")
    thread = threading.Thread(target=lambda: seen.append(context.get("n")))
    thread.start()
    thread.join()
    assert seen == [None]


def test_a_value_that_cannot_be_pickled_is_named() -> None:
    context.set(fine=1, lock=threading.Lock())
    with pytest.raises(TypeError, match="value 'lock' cannot be pickled"):
        _ambient.capture()


def test_our_own_names_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match=r"may not begin with 'agentix\.'"):
        context.var("agentix.trace", default=None)


def test_capturing_costs_nothing_before_it_is_used() -> None:
    script = "import sys; from agentix import _ambient; print(_ambient.capture(), 'pickle' in sys.modules)"
    assert python("-c", script).split() == ["None", "False"]
