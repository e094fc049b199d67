"""Draws a plan: offsets against execution order, results in place, the budget."""

from __future__ import annotations

import html as markup
import string

from ..records import PlanFacts, PlannedBuffer

_WIDTH, _HEIGHT = 1000, 480
_LEFT, _TOP, _BOTTOM = 80, 20, 40
_HUES = {"input": 145, "output": 25, "intermediate": 215, "workspace": 300}
_STEPS = 5
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: var(--text, #333); }
.axis { stroke: var(--text, #333); stroke-width: 1; }
.bound { stroke: #2a9d3a; stroke-dasharray: 6 3; } .budget { stroke: #c62828; stroke-dasharray: 2 2; }
.place { stroke: var(--ground, #fff); stroke-width: 0.5; } .place:hover { fill-opacity: 1; stroke: #000; }
.chain { stroke: #000; stroke-opacity: 0.5; stroke-width: 1; }
"""


def svg(plan: PlanFacts) -> str:
    """Draw one rectangle per buffer, from its first to its last node, at its offset; return the SVG text.

    A vertical line in a rectangle is a node that overwrites its operand in place. Buffers whose sizes are
    formulas are not drawn; the picture says how many there are.
    """
    steps = max(1, len(plan.nodes))
    top = max(plan.peak or 0, _drawn_budget(plan) or 0, 1)
    x_unit, y_unit = (_WIDTH - _LEFT - 10) / steps, (_HEIGHT - _TOP - _BOTTOM) / top
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{_title(plan)}</title><style>{_STYLE}</style>",
    ]
    parts += [_rectangle(buffer, x_unit, y_unit) for buffer in plan.buffers if buffer.offset is not None]
    parts += _chains(plan, x_unit, y_unit)
    parts += _axes(plan, top, y_unit)
    parts.append("</svg>")
    return "\n".join(parts)


def _title(plan: PlanFacts) -> str:
    if plan.peak is None:
        return f"{len(plan.buffers)} buffers whose sizes are formulas"
    peak, bound = format_bytes(plan.peak), format_bytes(plan.lower_bound or 0)
    return f"{len(plan.buffers)} buffers in {peak}, lower bound {bound}"


def _drawn_budget(plan: PlanFacts) -> int | None:
    """Return the budget minus the weights, if it is positive and at most twice the peak; else None."""
    if plan.budget is None or plan.peak is None:
        return None
    block_budget = plan.budget - plan.weight_bytes
    return block_budget if 0 < block_budget <= 2 * plan.peak else None


def _rectangle(buffer: PlannedBuffer, x_unit: float, y_unit: float) -> str:
    first, last = buffer.lifetime
    size = buffer.size if isinstance(buffer.size, int) else 0
    x, y = _LEFT + first * x_unit, _vertical_position((buffer.offset or 0) + size, y_unit)
    lightness = 45 + (first * 7) % 30
    fill = f"hsl({_HUES[buffer.kind]} 60% {lightness}%)"
    label = f"{buffer.name}: {format_bytes(size)} at {buffer.offset}, nodes {first} to {last}"
    return (
        f'<rect class="place" x="{x:.2f}" y="{y:.2f}" width="{(last - first + 1) * x_unit:.2f}" '
        f'height="{size * y_unit:.2f}" fill="{fill}" fill-opacity="0.85"><title>{_text(label)}</title></rect>'
    )


def _chains(plan: PlanFacts, x_unit: float, y_unit: float) -> list[str]:
    """Draw a line at each node that overwrites its first operand."""
    buffer_of = {value: buffer for buffer in plan.buffers for value in buffer.values}
    lines = []
    for node in plan.nodes:
        buffer = buffer_of.get(node.outputs[0]) if 0 in node.in_place else None
        if buffer is None or buffer.offset is None or not isinstance(buffer.size, int):
            continue
        x = _LEFT + node.index * x_unit
        top, bottom = (
            _vertical_position(buffer.offset + buffer.size, y_unit),
            _vertical_position(buffer.offset, y_unit),
        )
        label = f"{node.op_type} {node.name} in place"
        lines.append(
            f'<line class="chain" x1="{x:.2f}" x2="{x:.2f}" y1="{top:.2f}" y2="{bottom:.2f}">'
            f"<title>{_text(label)}</title></line>"
        )
    return lines


def _axes(plan: PlanFacts, top: int, y_unit: float) -> list[str]:
    floor = _HEIGHT - _BOTTOM
    parts = [
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{floor}" y2="{floor}"/>',
        f'<line class="axis" x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP}" y2="{floor}"/>',
        f'<text x="{_LEFT}" y="{floor + 16}">0</text>',
        f'<text x="{_WIDTH - 10}" y="{floor + 16}" text-anchor="end">{len(plan.nodes)} nodes</text>',
    ]
    for step in range(_STEPS + 1):
        value = top * step // _STEPS
        y = _vertical_position(value, y_unit) + 4
        parts.append(f'<text x="{_LEFT - 6}" y="{y:.1f}" text-anchor="end">{format_bytes(value)}</text>')
    marks = (("bound", plan.lower_bound, "lower bound"), ("budget", _drawn_budget(plan), "budget"))
    for name, mark, label in marks:
        if mark:
            y = _vertical_position(mark, y_unit)
            parts.append(f'<line class="{name}" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text x="{_WIDTH - 14}" y="{y - 3:.1f}" text-anchor="end">{label} '
                f"{format_bytes(mark)}</text>"
            )
    return parts


def _vertical_position(offset: int, y_unit: float) -> float:
    return _HEIGHT - _BOTTOM - offset * y_unit


def format_bytes(size: int) -> str:
    """Format bytes: `1.5 MiB`."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.4g} {units[0]}"


def _text(label: str) -> str:
    return markup.escape("".join(character if character.isprintable() else "\ufffd" for character in label))


_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Compile plan</title><style>
:root { color-scheme: light dark; --text: #222; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --ground: #181818; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground); margin: 1rem; }
svg { width: 100%; height: auto; } table { border-collapse: collapse; }
td, th { padding: 0.15rem 0.6rem; text-align: left; border-bottom: 1px solid #8884; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } .scroll { overflow-x: auto; }
</style></head><body>
<h1>Compile plan</h1>
<p>$summary</p>
$picture
<h2>Buffers</h2>
<div class="scroll"><table><thead><tr><th>buffer</th><th>kind</th><th>offset</th><th>size</th><th>nodes</th>
<th>values</th></tr></thead><tbody>
$rows
</tbody></table></div>
$bodies
</body></html>
""")


def html(plan: PlanFacts) -> str:
    """Return an HTML page with the picture and a table of the buffers; it loads nothing from the network."""
    rows = []
    for buffer in sorted(plan.buffers, key=lambda b: -b.size if isinstance(b.size, int) else 0):
        size = format_bytes(buffer.size) if isinstance(buffer.size, int) else buffer.size
        offset = "" if buffer.offset is None else str(buffer.offset)
        cells = [_text(buffer.name), buffer.kind]
        numbers = [offset, _text(size), f"{buffer.lifetime[0]}\u2013{buffer.lifetime[1]}"]
        columns = [f"<td>{cell}</td>" for cell in cells]
        columns += [f"<td class=number>{cell}</td>" for cell in numbers]
        rows.append(f"<tr>{''.join(columns)}<td>{len(buffer.values)}</td></tr>")
    return _PAGE.substitute(
        summary=_text(summary(plan)), picture=svg(plan), rows="\n".join(rows), bodies=_bodies(plan)
    )


def _bodies(plan: PlanFacts) -> str:
    """Return an HTML table of the sub-graphs, including nested ones; "" if there are none."""
    rows = []
    pending = [(plan.nodes[body.node].name, body) for body in plan.bodies]
    while pending:
        name, body = pending.pop(0)
        memory = "" if body.peak is None else format_bytes(body.peak)
        cells = [name, body.attribute, memory, str(len(body.nodes)), str(len(body.buffers))]
        cells.append(body.unplanned or "")
        rows.append(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>")
        pending += [(f"{name} / {body.nodes[inner.node].name}", inner) for inner in body.bodies]
    if not rows:
        return ""
    head = "<tr><th>node</th><th>sub-graph</th><th>memory</th><th>nodes</th><th>buffers</th><th></th></tr>"
    table = "\n".join([f"<table><thead>{head}</thead><tbody>", *rows, "</tbody></table>"])
    return f'<h2>Sub-graphs</h2>\n<div class="scroll">{table}</div>'


def summary(plan: PlanFacts) -> str:
    """Describe the plan in a sentence or two."""
    in_place = sum(bool(node.in_place) for node in plan.nodes)
    views = sum(node.view for node in plan.nodes)
    text = f"{len(plan.nodes)} nodes ({in_place} in place, {views} views), {_title(plan)}"
    text += f"; weights {format_bytes(plan.weight_bytes)}"
    if plan.fits is not None:
        verb = "fit" if plan.fits else "do not fit"
        text += f"; together they {verb} into the budget of {format_bytes(plan.budget or 0)}"
    return text
