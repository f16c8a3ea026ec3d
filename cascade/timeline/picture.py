"""A measured timeline as an SVG picture: the whole run, the steps of each kind, and one step of each kind in detail.

The file needs nothing to be drawn and opens in any browser. Where kernels are closer than a pixel, what is drawn is the
share of the pixel they fill, so that a picture of 100,000 kernels stays small and true.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from cascade.timeline.host_model import TAU_NS, busy_ns, start_order
from cascade.timeline.model import Kernel, Kind, RealTimeline, Step, by_kind
from cascade.timeline.report import show_ns

COLOURS: dict[Kind, str] = {"prefill": "#1b6ca8", "decode": "#2a9d5c", "mixed": "#7a4fa3", "other": "#5b6770"}
GAP = "#f3c6bd"
LATE = "#d1495b"
INK = "#222222"
FAINT = "#dddddd"

_WIDTH = 1200
_LEFT, _RIGHT = 120, 30
_PLOT = _WIDTH - _LEFT - _RIGHT
_LANE = 22
_COLUMNS_HEIGHT = 110
_MOST_LANES = 8
_MOST_KERNELS_NAMED = 3_000


@dataclass
class _Svg:
    parts: list[str] = field(default_factory=list)
    y: float = 20

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1, title: str = ""
    ) -> None:
        shade = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
        body = f"><title>{escape(title)}</title></rect>" if title else "/>"
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.1):.2f}" height="{height:.2f}" fill="{fill}"{shade}{body}'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "start", size: int = 12, bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = FAINT) -> None:
        self.parts.append(f'<path d="M{x1:.2f} {y1:.2f}L{x2:.2f} {y2:.2f}" stroke="{stroke}"/>')

    def document(self, title: str) -> str:
        height = self.y + 10
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {_WIDTH} {height:.0f}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" fill="{INK}">\n'
            f"<title>{escape(title)}</title>\n"
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
        )


def draw(timeline: RealTimeline) -> str:
    """The picture as SVG text, the same for the same timeline."""
    svg = _Svg()
    meta = timeline.meta
    svg.text(
        _LEFT,
        svg.y,
        f"{meta.run_name}: measured timeline" + (f" on {meta.gpu}" if meta.gpu else ""),
        size=16,
        bold=True,
    )
    svg.y += 22
    _legend(svg, timeline)
    if not timeline.steps:
        svg.text(_LEFT, svg.y + 12, "no steps")
        svg.y += 24
    for repeat in sorted({step.repeat for step in timeline.steps}):
        _draw_run(svg, [step for step in timeline.steps if step.repeat == repeat], f"repeat {repeat}")
    for kind in by_kind(step.kind for step in timeline.steps):
        steps = sorted((step for step in timeline.steps if step.kind == kind), key=lambda step: step.key)
        _draw_columns(svg, steps, kind)
    for kind in by_kind(step.kind for step in timeline.steps):
        steps = sorted(
            (step for step in timeline.steps if step.kind == kind), key=lambda step: (step.wall_ns, step.key)
        )
        _draw_step(svg, steps[(len(steps) - 1) // 2], len(steps))
    return svg.document(f"{meta.run_name}: measured timeline")


def busy_share(intervals: Iterable[tuple[int, int]], start: int, end: int, bins: int) -> NDArray[np.float64]:
    """Share, from 0 to 1, of each of `bins` equal parts of [start, end) that the union of the intervals (ns) covers."""
    # Covered time up to each edge of a part, by interpolating covered time between the ends of merged intervals.
    edges, covered = [float(start)], [0.0]
    frontier = start
    for low, high in sorted(intervals):
        low, high = max(low, frontier), min(high, end)
        if high > low:
            edges += [low - start + start, high]
            covered += [covered[-1], covered[-1] + high - low]
            frontier = high
    at = np.interp(np.linspace(start, end, bins + 1), edges, covered)
    share: NDArray[np.float64] = np.clip(np.diff(at) * bins / max(end - start, 1), 0, 1)
    return share


def gaps(step: Step) -> list[tuple[int, int]]:
    """The times (start, end) in ns, longer than tau, in which no kernel of the step ran, in order."""
    found: list[tuple[int, int]] = []
    frontier = step.start_ns
    for position in start_order(step.kernels):
        kernel = step.kernels[position]
        if kernel.start_ns - frontier > TAU_NS:
            found.append((frontier, kernel.start_ns))
        frontier = max(frontier, kernel.end_ns)
    if step.end_ns - frontier > TAU_NS:
        found.append((frontier, step.end_ns))
    return found


def _legend(svg: _Svg, timeline: RealTimeline) -> None:
    x = float(_LEFT)
    entries = [(COLOURS[kind], f"GPU busy, {kind}") for kind in by_kind(step.kind for step in timeline.steps)]
    entries += [(GAP, "GPU idle in a step"), (LATE, f"idle longer than {show_ns(TAU_NS)}"), (INK, "launch by the host")]
    for colour, words in entries:
        svg.rect(x, svg.y - 9, 12, 12, colour)
        svg.text(x + 17, svg.y + 1, words)
        x += 40 + 6.6 * len(words)
    svg.y += 22


def _heading(svg: _Svg, words: str) -> None:
    svg.y += 16
    svg.text(_LEFT, svg.y, words, size=13, bold=True)
    svg.y += 10


def _draw_run(svg: _Svg, steps: Sequence[Step], name: str) -> None:
    """One lane: each step's idle time as ground, its busy share over it."""
    start, end = min(step.start_ns for step in steps), max(step.end_ns for step in steps)
    _heading(svg, f"The run: {len(steps):,} steps in {show_ns(end - start)}")
    svg.text(_LEFT - 8, svg.y + 15, name, "end")
    scale = _PLOT / max(end - start, 1)
    for step in sorted(steps, key=lambda step: step.start_ns):
        x, width = _LEFT + (step.start_ns - start) * scale, step.wall_ns * scale
        bins = max(min(round(width), _PLOT), 1)
        share = busy_share(((k.start_ns, k.end_ns) for k in step.kernels), step.start_ns, step.end_ns, bins)
        # A hair of white between steps that are wide enough to tell apart.
        inner = width - 0.4 if width > 2 else width
        svg.rect(x, svg.y, inner, _LANE, GAP, title=f"{_name(step)}: {show_ns(step.wall_ns)}")
        _shades(svg, share, x, inner, svg.y, COLOURS[step.kind])
    svg.y += _LANE
    _time_axis(svg, end - start)


def _draw_columns(svg: _Svg, steps: Sequence[Step], kind: Kind) -> None:
    """A column a step, or a few steps where there are more than pixels: busy time below, idle time on top."""
    group = -(-len(steps) // (_PLOT // 3))
    columns = [steps[first : first + group] for first in range(0, len(steps), group)]
    walls = [sum(step.wall_ns for step in column) / len(column) for column in columns]
    busy = [sum(map(busy_ns, column)) / len(column) for column in columns]
    each = "each column a step" if group == 1 else f"each column the mean of {group} steps"
    _heading(svg, f"{kind}: wall time of {len(steps):,} steps, {each}")
    top = max(max(walls), 1.0)
    scale = _COLUMNS_HEIGHT / top
    bottom = svg.y + _COLUMNS_HEIGHT
    for tick in _ticks(top, 4):
        y = bottom - tick * scale
        svg.line(_LEFT, y, _LEFT + _PLOT, y)
        svg.text(_LEFT - 8, y + 4, show_ns(tick) if tick else "0", "end", size=11)
    width = min(_PLOT / len(columns), 40)
    for position, (column, wall, work) in enumerate(zip(columns, walls, busy, strict=True)):
        x = _LEFT + position * width
        title = f"{_name(column[0])}: wall {show_ns(wall)}, GPU busy {show_ns(work)}"
        svg.rect(x, bottom - wall * scale, width * 0.85, (wall - work) * scale, GAP, title=title)
        svg.rect(x, bottom - work * scale, width * 0.85, work * scale, COLOURS[kind], title=title)
    svg.y = bottom
    step = max(-(-len(columns) // 12), 1)
    for position in range(0, len(columns), step):
        svg.text(_LEFT + (position + 0.425) * width, svg.y + 14, str(columns[position][0].index), "middle", size=11)
    svg.text(_LEFT - 8, svg.y + 14, "index", "end", size=11)
    svg.y += 20


def _draw_step(svg: _Svg, step: Step, siblings: int) -> None:
    """A lane a stream, launches above, idle times marked."""
    which = f"of median wall among {siblings:,}" if siblings > 1 else "the only one"
    idle = gaps(step)
    _heading(
        svg,
        f"{_name(step)}, {which}: {show_ns(step.wall_ns)}, GPU busy {show_ns(busy_ns(step))}, {len(step.kernels):,} kernels, "
        f"{len(idle):,} gaps over {show_ns(TAU_NS)}",
    )
    scale = _PLOT / max(step.wall_ns, 1)
    launches = [k.launch_ns for k in step.kernels if k.launch_ns is not None and k.launch_ns >= step.start_ns]
    if launches:
        svg.text(_LEFT - 8, svg.y + 11, "host launches", "end", size=11)
        pixels = sorted({round((launch - step.start_ns) * scale) for launch in launches})
        path = "".join(f"M{_LEFT + pixel} {svg.y + 2:.0f}v11" for pixel in pixels if pixel <= _PLOT)
        svg.parts.append(f'<path d="{path}" stroke="{INK}" stroke-width="0.7"/>')
        svg.y += 16
    lanes: dict[int | str | None, list[Kernel]] = {}
    for position in start_order(step.kernels):
        lanes.setdefault(step.kernels[position].stream, []).append(step.kernels[position])
    shown = list(lanes)[:_MOST_LANES]
    height = _LANE * max(len(shown), 1)
    svg.rect(_LEFT, svg.y, _PLOT, height, GAP, opacity=0.6)
    for start, end in idle:
        x = _LEFT + (start - step.start_ns) * scale
        svg.rect(
            x, svg.y, (end - start) * scale, height, LATE, opacity=0.45, title=f"GPU idle for {show_ns(end - start)}"
        )
    for stream in shown:
        svg.text(_LEFT - 8, svg.y + 15, "stream" if stream is None else f"stream {stream}", "end", size=11)
        _draw_lane(svg, step, lanes[stream], scale)
        svg.y += _LANE
    if len(lanes) > len(shown):
        svg.text(_LEFT - 8, svg.y + 12, f"{len(lanes) - len(shown)} more streams", "end", size=11)
    svg.y += 0 if shown else _LANE
    _time_axis(svg, step.wall_ns)


def _draw_lane(svg: _Svg, step: Step, kernels: Sequence[Kernel], scale: float) -> None:
    colour = COLOURS[step.kind]
    if len(kernels) > _MOST_KERNELS_NAMED:
        share = busy_share(((k.start_ns, k.end_ns) for k in kernels), step.start_ns, step.end_ns, _PLOT)
        _shades(svg, share, _LEFT, _PLOT, svg.y + 3, colour, _LANE - 6)
        return
    for kernel in kernels:
        x, width = _LEFT + (kernel.start_ns - step.start_ns) * scale, (kernel.end_ns - kernel.start_ns) * scale
        # White between kernels that are wide enough, so that back-to-back ones can be told apart.
        inner = width - 0.5 if width > 2 else width
        title = f"{kernel.name[:120]}: {show_ns(kernel.end_ns - kernel.start_ns)}"
        svg.rect(x, svg.y + 3, inner, _LANE - 6, colour, title=title)


def _shades(
    svg: _Svg, share: NDArray[np.float64], x: float, width: float, y: float, colour: str, height: float = _LANE
) -> None:
    """Parts of a lane, as dark as their share; neighbours of one shade as one rectangle."""
    shade = np.round(share, 2)
    first = 0
    pixel = width / len(shade)
    for position in range(1, len(shade) + 1):
        if position == len(shade) or shade[position] != shade[first]:
            if shade[first] > 0:
                svg.rect(x + first * pixel, y, (position - first) * pixel, height, colour, opacity=float(shade[first]))
            first = position


def _time_axis(svg: _Svg, length: int) -> None:
    scale = _PLOT / max(length, 1)
    for tick in _ticks(max(length, 1), 8):
        x = _LEFT + tick * scale
        svg.line(x, svg.y, x, svg.y + 4, INK)
        svg.text(x, svg.y + 16, show_ns(tick) if tick else "0", "middle", size=11)
    svg.y += 20


def _ticks(top: float, most: int) -> list[float]:
    """Round values from 0 to at most `top`, no more than `most` + 1 of them."""
    rough = top / most
    power = 10 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * position for position in range(int(top / step) + 1)]


def _name(step: Step) -> str:
    name = f" ({step.name[:60]})" if step.name else ""
    return f"{step.kind} {step.index}{name}"
