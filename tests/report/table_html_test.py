import re
from typing import Any, List

import pytest

from elmo_plugin.report.report_table import ReportTable
from elmo_plugin.report.table_html import is_failed, num_failed, table_html, with_code


def table(columns: List[str], *rows: List[Any]) -> ReportTable:
    return ReportTable("scores", "Scores", columns, list(rows), [], {})


def cells(html: str) -> List[List[str]]:
    """The content of each cell in the body, by row, without tags."""
    body = html.partition("<tbody>")[2]
    return [
        [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", body, flags=re.DOTALL)
    ]


def column(*values: Any, name: str = "F1") -> List[str]:
    return [row[0] for row in cells(table_html(table([name], *([value] for value in values))))]


def test_a_column_of_numbers_has_equally_many_decimals_so_that_points_stand_under_each_other() -> (
    None
):
    assert column(0.41234, 0.5, 1) == ["0.412", "0.500", "1.000"]
    assert column(33.2, 100, None, "failed") == ["33.2", "100.0", "–no value", "failed"]
    assert column(1, 20, 300) == ["1", "20", "300"]


def test_a_number_that_is_not_zero_is_not_shown_as_zero() -> None:
    assert column(0.00001, -0.00002, 0.25, 0.0) == ["1e−05", "−2e−05", "0.25", "0.00"]


def test_large_numbers_are_grouped_and_seeds_are_not() -> None:
    assert column(1234, 163483, -20000.5) == ["1234.0", "163,483.0", "−20,000.5"]
    assert column(13370, name="seed") == column(13370, name="Seeds of the split") == ["13370"]
    assert column(20000, name="dev F1, seed 1") == ["20,000"]


def test_what_is_not_finite_is_shown_as_it_is() -> None:
    assert column(float("nan"), float("inf"), 1.5) == ["nan", "inf", "1.5"]


def test_numbers_and_text_of_digits_go_to_the_right() -> None:
    html = table_html(
        table(
            ["task", "F1", "mean (std)", "seeds", "ELMo", "learning rate"],
            ["ner", 28.5, "33.2 (4.1)", "1, 2, 3", "input", "1e-3"],
            ["sst", "failed", "± 4.1 %", "1 – 3", "2 places", None],
        )
    )
    heads = re.findall(r'<th scope="col"( class="number")?>([^<]+)</th>', html)
    assert [name for is_number, name in heads if is_number] == [
        *("F1", "mean (std)", "seeds", "learning rate")
    ]
    assert html.count('class="number failed"') == 1
    assert html.count('class="number empty"') == 1


def test_the_first_column_heads_its_rows_and_stays_in_view_if_it_is_text() -> None:
    html = table_html(table(["task", "F1"], ["ner", 1.0]))
    assert '<th scope="row">ner</th>' in html
    assert '<table class="pinned">' in html
    html = table_html(table(["epoch", "F1"], [1, 1.0]))
    assert "row" not in html
    assert "pinned" not in html


def test_long_text_may_break_and_short_text_may_not() -> None:
    html = table_html(
        table(["data"], ["8,002 pairs"], ["8,002 pairs, all from the dev and test data"])
    )
    assert html.count('class="long"') == 1


def test_text_is_escaped_and_code_is_marked() -> None:
    html = table_html(table(["<b>"], ["a < b & `c<d>`"]))
    assert "<b>" not in html
    assert "a &lt; b &amp; <code>c&lt;d&gt;</code>" in html
    assert with_code("`one` and `two") == "<code>one</code> and `two"


def test_an_empty_table_has_its_heads() -> None:
    assert '<th scope="col">F1</th>' in table_html(table(["F1"]))
    assert "<caption" in table_html(table([]))


@pytest.mark.parametrize("cell", ["failed", " Failed", "failed: out of memory", "failed (seed 2)"])
def test_a_cell_says_that_its_run_failed(cell: str) -> None:
    assert is_failed(cell)


@pytest.mark.parametrize("cell", ["failed attempts", "not failed", "", None, 1.0, "1 failed"])
def test_other_cells_do_not(cell: Any) -> None:
    assert not is_failed(cell)


def test_failed_cells_are_counted() -> None:
    assert num_failed(table(["a", "b"], ["failed", 1], [2, "failed: no memory"], [3, None])) == 2
