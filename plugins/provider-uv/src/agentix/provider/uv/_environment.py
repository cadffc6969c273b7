"""The provider's virtual environment: a given one, or one made by whoever asks first, once."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sysconfig
import weakref
from pathlib import Path

from agentix import _core
from agentix.provider._drive import Driver, remove_tree

from . import _own, _places
from ._config import UvProviderConfig

_NOT_FOR_UV = ("PYTHON", "UV_SYSTEM_PYTHON=", "UV_PYTHON=", "VIRTUAL_ENV=", "CONDA_")
"""Beginnings of variables that would make uv, or the builds that it runs, look elsewhere than it is told to."""


class Environment:
    """Gives the interpreter that sandboxes run."""

    def __init__(self, config: UvProviderConfig) -> None:
        self._config = config
        self._made: Path | None = None
        self._making: asyncio.Task[Path] | None = None
        self._askers = 0
        self._finalizer: weakref.finalize[..., Environment] | None = None

    async def python(self) -> str:
        """Return the interpreter. Making it is shared by all who wait; it is given up when the last is cancelled."""
        if self._config.reuse_venv is not None:
            return _absolute(self._config.reuse_venv, "bin", "python")
        place = self._made or await self._shared()
        return str(place / "venv" / "bin" / "python")

    async def _shared(self) -> Path:
        making = self._making
        if making is None or making.done() or making.get_loop() is not asyncio.get_running_loop():
            self._making = making = asyncio.ensure_future(self._make())
            self._askers = 0
        self._askers += 1
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            if self._making is making and self._askers == 1:
                self._making = None  # who comes now begins anew
                await _cancel(making)
            elif making.cancelled() and self._making is None:
                raise RuntimeError("the provider was closed while its environment was being made") from None
            raise
        finally:
            if self._making is making:
                self._askers -= 1

    async def _make(self) -> Path:
        place = _places.make_environment()
        try:
            own = await asyncio.to_thread(_own.make_wheels, _places.wheels())
            lines = "".join(f"{wheel.requirement()}\n" for wheel in own)
            _places.write_private(place / "constraints.txt", lines)
            wish = await Driver(self._brain(place, own)).drive()
            if wish["kind"] != "done":
                raise RuntimeError(_with_hint(wish["message"], own))
        except BaseException:
            remove_tree(place)
            raise
        self._made = place
        self._finalizer = weakref.finalize(self, _remove, place, os.getpid())
        return place

    def _brain(self, place: Path, own: list[_own.OwnWheel]) -> _core.Brain:
        config = self._config
        return _core.uv_venv(
            uv=_find_uv(config.uv_bin),
            venv=place / "venv",
            python=config.python,
            project=_absolute(config.project) if config.project is not None else None,
            install=[own[0].requirement(), *config.install],
            index_url=config.index_url,
            extra_index_url=config.extra_index_url,
            constraints=place / "constraints.txt",
            own=[wheel.name for wheel in own],
            env=[pair for pair in host_environ() if not pair.startswith(_NOT_FOR_UV)],
        )

    async def remove(self) -> None:
        """Remove the environment, if it was made here; give it up, if it is being made."""
        making, self._making = self._making, None
        if making is not None and making.get_loop() is asyncio.get_running_loop():
            await _cancel(making)
        finalizer, self._finalizer, self._made = self._finalizer, None, None
        if finalizer is not None:
            await asyncio.to_thread(finalizer)


async def _cancel(task: asyncio.Task[Path]) -> None:
    """Cancel it and wait until it has cleaned up, however long that takes."""
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            pass  # it was cancelled already
    if not task.cancelled():
        task.exception()  # it is taken note of


def _with_hint(message: str, own: list[_own.OwnWheel]) -> str:
    """Where uv names one of ours, say which version of it there is."""
    named = [f"{name}=={version}" for name, version, _ in own if re.search(rf"(?<![\w/.-]){name}(?![\w/.-])", message)]
    if not named:
        return message
    return f"{message}\nhint: the environment gets what runs here, {', '.join(named)}, and no other version"


def _absolute(*parts: str) -> str:
    return os.path.abspath(os.path.join(*parts))


def _remove(place: Path, process: int) -> None:
    if process == os.getpid():  # a forked child comes here too, when it ends
        remove_tree(place)


def host_environ() -> list[str]:
    """Return this process's environment as `name=value`."""
    return [f"{name}={value}" for name, value in os.environ.items()]


def _find_uv(name: str) -> str:
    """Find uv beside this interpreter, where its wheel puts it, else on PATH."""
    if os.path.dirname(name):
        return name
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    found = beside if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name!r} was not found beside this interpreter or on PATH; install uv, or set uv_bin=")
    return found
