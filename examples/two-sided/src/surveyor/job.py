"""The sandbox's side: a job that says how far it is, and asks."""

import asyncio
import statistics

from agentix import Namespace, register_namespace


class Surveyor(Namespace):
    """What the job says to whoever sits at the desk."""

    namespace = "/surveyor"


surveyor = Surveyor()
register_namespace(surveyor)


async def survey(fields: list[float], *, seconds_each: float = 0.0) -> dict[str, float]:
    """Measure every field, and let the host decide what becomes of those far off the middle."""
    middle = statistics.median(fields)
    kept: list[float] = []
    for number, field in enumerate(fields, 1):
        await asyncio.sleep(seconds_each)
        await surveyor.emit("progress", {"done": number, "of": len(fields)})
        if abs(field - middle) > 10:
            answer = await surveyor.request("decide", {"field": number, "measured": field}, timeout=60)
            if answer == "drop":
                continue
        kept.append(field)
    return {"fields": len(kept), "mean": statistics.fmean(kept)}
