"""`elmo report page`: the tables and pictures of a folder as one HTML file."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common import Params

from elmo_plugin import __version__
from elmo_plugin.arguments import option
from elmo_plugin.files.output_file import check_output_file
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.report.tables import (
    FAILED,
    Report,
    ReportTable,
    check_option,
    format_cell,
    read_table,
)

# An SVG of many thousand points is larger than its PNG, and slower to display.
MAX_SVG_BYTES = 500_000
_MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".csv": "text/csv"}
_SMALLEST_GROUPED = 10_000  # 1234, but 12,345
_LONG_TEXT = 32  # characters of a cell that may break


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """
    Put the tables and pictures in a folder of results, and in its sub-folders, into one HTML file that
    needs nothing else: no network, no other file, no JavaScript. It can be read on a phone, on a wide
    screen, in dark mode, and on paper.

    A table is a NAME.json beside a NAME.csv, as the other reports write them. A picture, .svg or .png,
    belongs to the table whose name its own name starts with; if there are several, to the longest.

    example:
      elmo report page results -o report.html
    """

    folder: str = option(
        "folder of results; its sub-folders are read too", positional=True, metavar="DIR"
    )
    output: str = option(
        "the HTML file to write; it appears when it is complete", short="-o", metavar="FILE"
    )
    title: Optional[str] = option("title of the page (default: Results, and the name of DIR)", None)
    overwrite: bool = option(
        "replace FILE if it exists (default: stop with an error)", False, recorded=False
    )


class Cell(NamedTuple):
    """The text of a cell, and its CSS classes."""

    text: str
    style: str


class Picture(NamedTuple):
    """The caption of a picture, and its content as a data URI."""

    caption: str
    uri: str


class Section(NamedTuple):
    """A table of the page, with its pictures."""

    name: str  # path of its files in the folder, without suffix and with slashes: `ner/layers`
    table: ReportTable
    rows: List[List[Cell]]
    pictures: List[Picture]
    settings: Dict[str, str]  # nested names are joined by dots
    csv_uri: str

    @property
    def folder(self) -> str:
        """Return the sub-folder, with slashes; empty for the folder itself."""
        return self.name.rpartition("/")[0]

    @property
    def num_failed(self) -> int:
        return sum(_is_failed(cell) for row in self.table.rows for cell in row)


def write_page(options: PageOptions) -> Report:
    """Write one HTML file with the tables and pictures of a folder of results."""
    import jinja2

    # Browsers need the suffix, and no other file can be replaced by mistake.
    is_html = options.output.lower().endswith((".html", ".htm"))
    check_option("--output", options.output, is_html, "a name that ends in .html")
    check_output_file(options.output, options.overwrite, "--overwrite", what="--output")
    sections, other_pictures = read_results(Path(options.folder))
    source = resources.files("elmo_plugin.report").joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(source)
    # The page allows this style sheet by its hash and embedded pictures, and nothing else.
    style = "".join(template.blocks["style"](template.new_context()))
    html = template.render(
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        title=options.title or f"Results: {Path(options.folder).resolve().name}",
        generator=f"elmo_plugin {__version__}",
        sections=sections,
        other_pictures=other_pictures,
        num_failed=sum(section.num_failed for section in sections),
    )
    with replaced_file(options.output) as partial_file:
        partial_file.write_text(html, encoding="utf-8", newline="\n")
    return Report([section.table for section in sections], [Path(options.output)])


def read_results(folder: Path) -> Tuple[List[Section], List[Picture]]:
    """
    Read the tables of a folder and its sub-folders, those of the folder itself first, with their pictures,
    and the pictures that belong to no table. Names that begin with a dot are left out.
    """
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    # The folders of training runs contain other JSON files.
    tables = [p for p in files if p.suffix == ".json" and p.with_suffix(".csv").is_file()]
    check_option(
        "DIR",
        f"no table in {folder} or its sub-folders" if folder.is_dir() else f"no folder {folder}",
        bool(tables),
        "the output of `elmo report`, with NAME.json beside NAME.csv",
    )
    tables.sort(key=_place_on_page)
    pictures: Dict[Optional[Path], List[Path]] = {}
    for picture in sorted({p.with_suffix("") for p in files if p.suffix in (".png", ".svg")}):
        pictures.setdefault(_owner(picture, tables), []).append(picture)
    sections = []
    for path in tables:
        table = read_table(path)
        sections.append(
            Section(
                path.relative_to(folder).with_suffix("").as_posix(),
                table,
                formatted_rows(table),
                [_picture(picture, path, table.title) for picture in pictures.get(path, [])],
                {
                    key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                    for key, value in Params(table.settings).as_flat_dict().items()
                },
                _data_uri(path.with_suffix(".csv")),
            )
        )
    others = [
        Picture(path.relative_to(folder).as_posix(), _picture_uri(path))
        for path in pictures.get(None, [])
    ]
    return sections, others


def formatted_rows(table: ReportTable) -> List[List[Cell]]:
    """Return the cells of a table with their styles. Numbers of a column get the same number of decimals."""
    columns = [_column(*pair) for pair in zip(table.columns, zip(*table.rows))]
    return [list(row) for row in zip(*columns)]


def _column(name: str, cells: Sequence[Any]) -> List[Cell]:
    numbers = [cell for cell in cells if isinstance(cell, (int, float))]
    num_decimals = max((len(format_cell(cell).partition(".")[2]) for cell in numbers), default=0)
    texts = [cell for cell in cells if isinstance(cell, str) and cell and not _is_failed(cell)]
    result = []
    for cell in cells:
        if isinstance(cell, (int, float)):
            # A seed is a name: 13370, not 13,370.
            comma = "," if abs(cell) >= _SMALLEST_GROUPED and not name.startswith("seed") else ""
            text = f"{cell:{comma}.{num_decimals}f}".replace("-", "−")
        else:
            text = format_cell(cell)
        styles = {
            "number": bool(numbers) and not texts,
            "failed": _is_failed(cell),
            "empty": not text,
            "long": len(text) > _LONG_TEXT,
        }
        result.append(Cell(text or "–", " ".join(style for style in styles if styles[style])))
    return result


def _is_failed(cell: Any) -> bool:
    """Return whether a cell marks a failed run, with or without the reason."""
    return isinstance(cell, str) and cell.partition(":")[0] == FAILED


def _owner(picture: Path, tables: Sequence[Path]) -> Optional[Path]:
    """Return the table of a picture: "layers-ner" owns "layers-ner-curves", but not "layers-nerves"."""
    owners = [
        table
        for table in tables
        if table.parent == picture.parent
        and picture.name.startswith(table.stem)
        and not picture.name[len(table.stem) :][:1].isalnum()
    ]
    return max(owners, key=lambda path: len(path.stem), default=None)


def _place_on_page(table_file: Path) -> Tuple[Any, ...]:
    """Return the sort key of a table: its folder and name, "layers-differences-ner" after "layers-ner"."""
    main_table = re.sub("-(differences|epochs)", "", table_file.stem)
    return table_file.parent.parts, main_table, main_table != table_file.stem, table_file.stem


def _picture(picture: Path, table_file: Path, title: str) -> Picture:
    """Return a picture whose caption is the table's title and the rest of the picture's own name."""
    words = picture.name.removeprefix(table_file.stem).replace("-", " ").replace("_", " ").split()
    return Picture(f"{title}: {' '.join(words)}" if words else title, _picture_uri(picture))


def _picture_uri(stem: Path) -> str:
    """Return the SVG of a picture, or its PNG if the SVG is missing or large."""
    svg, png = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".svg", ".png"))
    has_svg = svg.is_file() and (svg.stat().st_size <= MAX_SVG_BYTES or not png.is_file())
    return _data_uri(svg if has_svg else png)


def _data_uri(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"data:{_MEDIA_TYPES[path.suffix]};base64,{content}"
