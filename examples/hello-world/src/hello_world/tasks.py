"""What the sandbox runs. None of these functions knows that it is called from another process."""

import asyncio
import os
import platform
import signal
import time
from typing import Any


def greet(name: str) -> str:
    """Say hello, and from where."""
    return f"Hello, {name}, from process {os.getpid()} on Python {platform.python_version()}"


def fit_line(points: list[tuple[float, float]]) -> dict[str, float]:
    """Least squares by numpy: only the sandbox needs it, as plain numbers come back."""
    import numpy as np

    x, y = np.array(points).T
    slope, intercept = np.polyfit(x, y, 1)
    return {"slope": float(slope), "intercept": float(intercept)}


def running_mean(values: list[float], window: int) -> Any:
    """Return a numpy array: it comes back as one to a host that has imported numpy."""
    import numpy as np

    return np.convolve(values, np.ones(window) / window, mode="valid")


def parse_order(text: str) -> int:
    """Fail the way real code fails: some frames deep."""
    return _quantity(text.split(":"))


def _quantity(fields: list[str]) -> int:
    return int(fields[1])


async def nap(seconds: float, value: int) -> int:
    """Sleep on the worker's event loop."""
    await asyncio.sleep(seconds)
    return value


def work(seconds: float, value: int) -> int:
    """Sleep in a thread."""
    time.sleep(seconds)
    return value


def crash() -> None:
    """Print something, then die the hard way."""
    print("the last words of the worker")
    os.kill(os.getpid(), signal.SIGKILL)
