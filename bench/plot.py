"""Draw what `run.py --save NAME` has written: NAME.json -> NAME-flight.svg and NAME-payload.svg.

    python bench/plot.py docs/internals/bench.json

The first has rate and latency over the calls in flight, the second over the size of a payload. It runs in an
environment of its own, made when first needed, that has matplotlib. The same JSON gives the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import peers
import probe

COLOURS = {
    "ours": "#1b6ca8",
    "floor": "#777777",
    "execnet": "#2e8b57",
    "rpyc": "#c9742b",
    "reference": "#8b3a62",
    "ray": "#6a5acd",
}
INSIDE = "AGENTIX_BENCH_PLOT"
Series = dict[str, list[tuple[float, float]]]


class Figures:
    """The medians of one run, as lines to draw."""

    def __init__(self, whole: dict[str, Any]) -> None:
        self._medians: dict[str, dict[str, float | None]] = {row["row"]: row["median"] for row in whole["rows"]}
        self.names = [name for name in COLOURS if any(name in median for median in self._medians.values())]

    def _median(self, key: str, name: str) -> float | None:
        return self._medians.get(key, {}).get(name)

    def rates(self, kind: str) -> Series:
        keys = {float(n): f"{kind}_c{n}_calls_s" for n in probe.IN_FLIGHT}
        return {name: self._points(name, keys) for name in self.names}

    def waits(self, kind: str) -> Series:
        """Microseconds that a call is under way, on average: calls in flight by their rate."""
        rates = self.rates(kind)
        return {name: [(width, width / rate * 1e6) for width, rate in points] for name, points in rates.items()}

    def bandwidths(self) -> Series:
        keys = {float(size): f"echo_{name}_MB_s" for name, size in probe.ECHO_BYTES.items()}
        return {name: self._points(name, keys) for name in self.names}

    def echo_times(self) -> Series:
        """Milliseconds of one echo: the value goes both ways."""
        return {n: [(size, 2 * size / rate / 1e3) for size, rate in p] for n, p in self.bandwidths().items()}

    def _points(self, name: str, keys: dict[float, str]) -> list[tuple[float, float]]:
        found = ((x, self._median(key, name)) for x, key in keys.items())
        return [(x, y) for x, y in found if y]


def panel(axes: Any, series: Series, title: str, unit: str) -> None:
    for name, points in series.items():
        if points:
            xs, ys = zip(*points, strict=True)
            width = 2.4 if name == "ours" else 1.2
            axes.plot(xs, ys, marker="o", markersize=3.5, linewidth=width, color=COLOURS[name], label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(unit, fontsize=9)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
    axes.tick_params(labelsize=8)


def figure(target: Path, panels: list[tuple[Series, str, str]], ticks: dict[float, str], below: str) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "agentix", "font.family": "sans-serif"})
    drawing, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.8))
    for one, (series, title, unit) in zip(axes, panels, strict=True):
        panel(one, series, title, unit)
        one.set_xticks(list(ticks), list(ticks.values()))
        one.xaxis.set_minor_locator(NullLocator())
        one.set_xlabel(below, fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=8, frameon=False)
    drawing.tight_layout(rect=(0, 0.07, 1, 1))
    drawing.savefig(target, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    plt.close(drawing)
    lines = target.read_text().splitlines()
    target.write_text("\n".join(line.rstrip() for line in lines) + "\n")
    print(target)


def draw(source: Path) -> None:
    figures = Figures(json.loads(source.read_text()))
    flight = [
        (figures.rates("sync"), "calls a second, sync target", "calls/s"),
        (figures.waits("sync"), "mean time a call is under way, sync target", "microseconds"),
        (figures.rates("async"), "calls a second, async target", "calls/s"),
    ]
    widths = {float(n): str(n) for n in probe.IN_FLIGHT}
    figure(source.with_name(f"{source.stem}-flight.svg"), flight, widths, "calls in flight")
    payload = [
        (figures.bandwidths(), "bytes a second of an echo, both directions", "MB/s"),
        (figures.echo_times(), "time of an echo", "milliseconds"),
    ]
    names = {"k": " KiB", "m": " MiB"}
    sizes = {float(size): name[:-1] + names[name[-1]] for name, size in probe.ECHO_BYTES.items()}
    figure(source.with_name(f"{source.stem}-payload.svg"), payload, sizes, "size of the value")


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    if INSIDE not in os.environ:
        try:
            python = peers.python_of(peers.environment("plot"))
        except peers.Unavailable as error:
            print(f"no environment to draw in: {error}", file=sys.stderr)
            return 1
        os.execve(python, [python, *sys.argv], {**os.environ, INSIDE: "1", "MPLBACKEND": "svg"})
    draw(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
