"""A table of results as HTML."""

import math
import re
from html import escape
from typing import Any, List, NamedTuple, Sequence, Union

from elmo_plugin.report.report_table import ReportTable, format_cell
from elmo_plugin.report.score_table import FAILED

_EMPTY = '<span aria-hidden="true">–</span><span class="unseen">no value</span>'
_SMALLEST_GROUPED = 10_000  # 1234, but 12,345
_MINUS = "−"  # as wide as a digit, in most fonts; a hyphen is not
_MAX_UNBROKEN = 32  # characters of a cell that is kept on one line
# Digits, and what stands between and around them: "28.5 (4.1)", "1, 2, 3", "0.98 ± 0.01", "54 %".
_NUMERIC_TEXT = re.compile(r"[-\d.,;:()\[\]%±+−–/×\s]*\d(?:e[-+−]\d+)?[-\d.,;:()\[\]%±+−–/×\s]*")
# Possibly followed by a reason; but not the begin of a sentence.
_FAILED_TEXT = re.compile(rf"\s*{FAILED}\s*($|[:,;(])", re.IGNORECASE)
_SEED_COLUMN = re.compile(r"seeds?\b", re.IGNORECASE)
_IN_BACKTICKS = re.compile(r"`([^`]+)`")


class _Column(NamedTuple):
    texts: List[str]
    is_numeric: bool


def is_failed(cell: Any) -> bool:
    """Whether a cell says that its run failed."""
    return isinstance(cell, str) and _FAILED_TEXT.match(cell) is not None


def num_failed(table: ReportTable) -> int:
    """How many cells of a table say so."""
    return sum(is_failed(cell) for row in table.rows for cell in row)


def with_code(text: str) -> str:
    """Text as HTML, in which `what stands between backticks` is code."""
    return _IN_BACKTICKS.sub(r"<code>\1</code>", escape(text))


def table_html(table: ReportTable) -> str:
    """
    The `<table>`: numbers to the right, with equally many decimals in a column; row headings, which stay in
    view, if the first column is text; cells that failed, and empty ones, marked.
    """
    columns = [
        _column(name, [row[index] for row in table.rows])
        for index, name in enumerate(table.columns)
    ]
    has_row_headings = bool(columns) and not columns[0].is_numeric
    lines = [
        f"<table{_classes(has_row_headings and 'pinned')}>",
        f'<caption class="unseen">{with_code(table.title)}</caption>',
        "<thead>",
        "<tr>",
    ]
    for name, column in zip(table.columns, columns):
        classes = _classes(column.is_numeric and "number")
        lines.append(f'<th scope="col"{classes}>{with_code(name)}</th>')
    lines += ["</tr>", "</thead>", "<tbody>"]
    for number, row in enumerate(table.rows):
        lines.append("<tr>")
        for index, (cell, column) in enumerate(zip(row, columns)):
            text = column.texts[number]
            classes = _classes(
                column.is_numeric and "number",
                is_failed(cell) and "failed",
                not text and "empty",
                len(text) > _MAX_UNBROKEN and "long",
            )
            is_heading = has_row_headings and index == 0
            tag, scope = ("th", ' scope="row"') if is_heading else ("td", "")
            content = with_code(text) if text else _EMPTY
            lines.append(f"<{tag}{scope}{classes}>{content}</{tag}>")
        lines.append("</tr>")
    lines += ["</tbody>", "</table>"]
    return "\n".join(lines)


def _classes(*names: Union[str, bool]) -> str:
    given = " ".join(name for name in names if isinstance(name, str))
    return f' class="{given}"' if given else ""


def _column(name: str, cells: Sequence[Any]) -> _Column:
    num_decimals = max((_num_decimals(cell) for cell in cells), default=0)
    # A seed is a name: 13370, not 13,370.
    groups_digits = not _SEED_COLUMN.match(name)
    texts = [_text(cell, num_decimals, groups_digits) for cell in cells]
    # Cells that are empty or failed say nothing about the kind of a column.
    filled = [text for cell, text in zip(cells, texts) if text and not is_failed(cell)]
    is_numeric = bool(filled) and all(map(_NUMERIC_TEXT.fullmatch, filled))
    return _Column(texts, is_numeric)


def _num_decimals(cell: Any) -> int:
    """As many as `format_cell` gives a number."""
    return len(format_cell(cell).partition(".")[2]) if _is_number(cell) else 0


def _text(cell: Any, num_decimals: int, groups_digits: bool) -> str:
    if not _is_number(cell):
        return format_cell(cell).strip()
    has_groups = groups_digits and abs(cell) >= _SMALLEST_GROUPED
    text = f"{cell:{',' * has_groups}.{num_decimals}f}"
    if cell != 0 and not text.strip("-0."):
        text = f"{cell:.2g}"  # not so small that it is nothing
    return text.replace("-", _MINUS)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool) and math.isfinite(cell)
