"""Writes a plan for engines in C: a header with tables, and the same tables as a flat binary.

Every name in the header begins with a prefix, so that a program may include the headers of several plans.

The binary is little-endian: the magic `OPLN`, then 32-bit unsigned numbers: format, number of nodes, of
buffers; then 64-bit unsigned peak and alignment; then per buffer 64-bit offset and size and 32-bit first and
last node; then per node the 32-bit number of outputs, and per output the 32-bit buffer (2**32 - 1: none).
Format 2 is of plans with several memories: offsets are from the beginning of a memory; the 32-bit number of
memories and their 64-bit bytes follow the alignment, and each buffer ends with the index of its memory.
"""

from __future__ import annotations

import hashlib
import re
import struct

from .....registration import PlanError, UsageError
from ..records import PlanFacts

PREFIX = "opsetta"
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
MAGIC = b"OPLN"
FORMAT = 1
FORMAT_OF_MEMORIES = 2
_NONE = 2**32 - 1
_HEAD = struct.Struct("<4sIIIQQ")
_BUFFER = struct.Struct("<QQII")

_TYPES = """\
/* Execution order and memory of a model, planned by opsetta. Node names are in plan.json. */
#ifdef {macro}_PLAN_H
#if {macro}_PLAN_H != {digest}
#error "two plans have the prefix {prefix}: write them with other prefixes"
#endif
#else
#define {macro}_PLAN_H {digest}

#include <stddef.h>
#include <stdint.h>

typedef struct {{
  uint64_t offset; /* bytes from the beginning of its memory */
  uint64_t size;   /* bytes */
  uint32_t first;  /* the first node that needs it */
  uint32_t last;   /* the last node that needs it, inclusive */
  uint32_t memory; /* the index of its memory, 0 if there is only one */
}} {prefix}_buffer;

typedef struct {{
  const char *op_type;
  const char *name;
  uint32_t output_count;
  const uint32_t *outputs; /* indices into {prefix}_buffers; UINT32_MAX: none */
}} {prefix}_node;

enum {{ {macro}_NODE_COUNT = {nodes}, {macro}_BUFFER_COUNT = {buffers}, {macro}_MEMORY_COUNT = {memories} }};
#define {macro}_PEAK UINT64_C({peak})
#define {macro}_ALIGNMENT UINT64_C({alignment})
"""


def check_prefix(prefix: object) -> None:
    """Raise UsageError for a prefix with which names are not C identifiers."""
    if not isinstance(prefix, str) or _IDENTIFIER.fullmatch(prefix) is None:
        raise UsageError(f"prefix must be a letter, then letters, digits and underscores, not {prefix!r}")


def header(plan: PlanFacts, prefix: str = PREFIX) -> str:
    """Return the text of the C header.

    Args:
        prefix: the beginning of every name; macros have it in capital letters.

    Raises:
        PlanError: sizes are formulas.
        UsageError: the prefix is not a C identifier.
    """
    check_prefix(prefix)
    tables = binary(plan)
    # The digest also covers operators and names of nodes, which the binary lacks.
    texts = "\0".join(text for node in plan.nodes for text in (node.op_type, node.name))
    digest = hashlib.sha256(tables + texts.encode()).hexdigest()[:8]
    lines = [
        _TYPES.format(
            nodes=len(plan.nodes),
            buffers=len(plan.buffers),
            memories=max(1, len(plan.memories)),
            peak=plan.peak,
            alignment=plan.alignment,
            prefix=prefix,
            macro=prefix.upper(),
            digest=f"0x{digest}UL",
        )
    ]
    peaks = [memory.peak for memory in plan.memories] or [plan.peak or 0]
    listed = ", ".join(f"UINT64_C({size})" for size in peaks)
    names = ", ".join(_quote(memory.name) for memory in plan.memories) or '""'
    lines.append(f"static const uint64_t {prefix}_memory_bytes[] = {{{listed}}};")
    lines.append(f"static const char *const {prefix}_memory_names[] = {{{names}}};")
    lines.append(f"static const {prefix}_buffer {prefix}_buffers[] = {{")
    for buffer, (offset, memory) in zip(plan.buffers, _positions(plan), strict=True):
        extent = f"UINT64_C({offset}), UINT64_C({buffer.size})"
        lines.append(f"  {{{extent}, {buffer.lifetime[0]}, {buffer.lifetime[1]}, {memory}}},")
    # C has no arrays of length 0.
    lines += [*([] if plan.buffers else ["  {0, 0, 0, 0, 0},"]), "};", ""]
    for node, outputs in zip(plan.nodes, _outputs(plan), strict=True):
        indices = ", ".join("UINT32_MAX" if index == _NONE else str(index) for index in outputs)
        lines.append(
            f"static const uint32_t {prefix}_outputs_{node.index}[] = {{{indices or 'UINT32_MAX'}}};"
        )
    lines += ["", f"static const {prefix}_node {prefix}_nodes[] = {{"]
    for node in plan.nodes:
        names = f"{_quote(node.op_type)}, {_quote(node.name)}"
        lines.append(f"  {{{names}, {len(node.outputs)}, {prefix}_outputs_{node.index}}},")
    lines += [*([] if plan.nodes else ["  {0, 0, 0, 0},"]), "};", "", "#endif", ""]
    return "\n".join(lines)


def binary(plan: PlanFacts) -> bytes:
    """Return the plan as a flat binary.

    Raises:
        PlanError: sizes are formulas.
    """
    _check(plan)
    form = FORMAT_OF_MEMORIES if plan.memories else FORMAT
    parts = [_HEAD.pack(MAGIC, form, len(plan.nodes), len(plan.buffers), plan.peak or 0, plan.alignment)]
    if plan.memories:
        count = len(plan.memories)
        parts.append(struct.pack(f"<I{count}Q", count, *(memory.peak for memory in plan.memories)))
    for buffer, (offset, memory) in zip(plan.buffers, _positions(plan), strict=True):
        parts.append(_BUFFER.pack(offset, buffer.size, *buffer.lifetime))
        if plan.memories:
            parts.append(struct.pack("<I", memory))
    parts += [struct.pack(f"<I{len(indices)}I", len(indices), *indices) for indices in _outputs(plan)]
    return b"".join(parts)


def _positions(plan: PlanFacts) -> list[tuple[int, int]]:
    """Return, for each buffer, its offset in its memory and the index of the memory."""
    begins = {memory.name: (memory.begin, index) for index, memory in enumerate(plan.memories)}
    positions = []
    for buffer in plan.buffers:
        begin, index = begins.get(buffer.memory or "", (0, 0))
        positions.append(((buffer.offset or 0) - begin, index))
    return positions


def _check(plan: PlanFacts) -> None:
    if plan.peak is None:
        raise PlanError(
            "the plan has formulas instead of sizes: pass the dimensions of the inputs to plan offsets"
        )


def _outputs(plan: PlanFacts) -> list[list[int]]:
    """Return, for each node, the index of the buffer of each output; `_NONE` without a buffer."""
    index_of = {value: index for index, buffer in enumerate(plan.buffers) for value in buffer.values}
    return [[index_of.get(name, _NONE) for name in node.outputs] for node in plan.nodes]


def _quote(text: str) -> str:
    """Write a text as a C string literal."""
    return (
        '"'
        + "".join(
            # A question mark may begin a trigraph, and a hexadecimal escape has no end; octal ones have three
            # digits.
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
            for byte in text.encode()
        )
        + '"'
    )
