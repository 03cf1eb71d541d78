"""`allennlp elmo-report page`: the tables and pictures of a folder as one HTML file."""

import argparse
import base64
import hashlib
import json
from html import escape
from importlib import resources
from itertools import groupby
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin import __version__
from elmo_plugin.files.output_file import check_output_file
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.report.embedded_picture import data_uri, embed_picture
from elmo_plugin.report.results_folder import (
    PictureFiles,
    ResultsFolder,
    TableSection,
    read_results,
)
from elmo_plugin.report.table_html import num_failed, table_html, with_code

_SUFFIXES = (".html", ".htm")
_MAX_NARROW = 750  # pixels of a picture that phones may shrink to half of its width
_OTHER_PICTURES = "Other pictures"
_OTHER_PICTURES_ANCHOR = "other-pictures"

_DESCRIPTION = """
Put the tables and pictures in a folder of results, and in its sub-folders, into one HTML file that needs
nothing else: no network, no other file, no JavaScript. It reads well on a phone and a wide screen, in the
dark, and printed.

A table is a NAME.json beside a NAME.csv, as the other subcommands write them. A picture, .svg or .png,
belongs to the table whose name its own is or begins with.

example:
  allennlp elmo-report page results -o report.html
"""


class PageSummary(NamedTuple):
    """What a page holds."""

    num_tables: int
    num_pictures: int
    num_failed: int
    """Cells of the tables whose run failed."""

    def __str__(self) -> str:
        counts = [
            _counted(self.num_tables, "table"),
            _counted(self.num_pictures, "picture"),
        ]
        if self.num_failed:
            counts.append(f"{_counted(self.num_failed, 'cell')} failed")
        return ", ".join(counts)


class Page:
    """A page to look at: `allennlp elmo-report page DIR -o FILE`. A `Subreport`."""

    name = "page"
    help = "Put the tables and pictures of a folder into one HTML file."
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "folder", metavar="DIR", help="of results; its sub-folders are read too"
        )
        parser.add_argument(
            "--output",
            "-o",
            required=True,
            metavar="FILE",
            help="the HTML file to write, which appears when it is complete; required",
        )
        parser.add_argument("--title", help="of the page (default: Results, and the name of DIR)")
        parser.add_argument(
            "--overwrite",
            action="store_true",
            help="replace FILE if it exists (default: stop before any work)",
        )

    def run(self, args: argparse.Namespace) -> None:
        summary = write_page(args.folder, args.output, args.title, args.overwrite)
        size = Path(args.output).stat().st_size / 1e6
        print(f"{args.output}: {summary}, {size:,.1f} MB")


def write_page(
    folder: Union[str, PathLike],
    output: Union[str, PathLike],
    title: Optional[str] = None,
    overwrite: bool = False,
) -> PageSummary:
    """
    Write one HTML file that holds the tables and pictures of a folder of results.

    # Parameters

    folder : `str` or `PathLike`
        See `read_results`.
    output : `str` or `PathLike`
        The file to write. It appears when it is complete.
    title : `str`, optional (default = Results, and the name of the folder)
        Of the page.
    overwrite : `bool`, optional (default = `False`)
        Replace `output` if it is there.

    # Raises

    `ConfigurationError` if the name of `output` does not end in `.html`, and as `check_output_file`,
    `read_results` and `embed_picture` do. `output` is then as it was before.
    """
    if Path(output).suffix.lower() not in _SUFFIXES:
        # Browsers go by it; and no file of the folder is replaced by mistake.
        raise ConfigurationError(
            f"--output: {output} has the suffix '{Path(output).suffix}', expected .html. Give another name."
        )
    check_output_file(output, overwrite, "--overwrite", what="--output")
    results = read_results(folder)
    summary = _summary(results)
    if title is None:
        title = f"Results: {Path(folder).resolve().name}"
    page = _page_html(results, title, summary)
    with replaced_file(output) as partial_file:
        partial_file.write_text(page, encoding="utf-8")
    return summary


def _summary(results: ResultsFolder) -> PageSummary:
    pictures = sum(len(section.pictures) for section in results.sections)
    return PageSummary(
        num_tables=len(results.sections),
        num_pictures=pictures + len(results.other_pictures),
        num_failed=sum(num_failed(section.table) for section in results.sections),
    )


def _page_html(results: ResultsFolder, title: str, summary: PageSummary) -> str:
    style = _packaged("page.css")
    # Only this style sheet may be applied, only embedded pictures shown, and nothing be fetched or run.
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    sections = [
        _section_html(section, _anchor(number))
        for number, section in enumerate(results.sections, start=1)
    ]
    if results.other_pictures:
        sections.append(_other_pictures_html(results.other_pictures))
    return Template(_packaged("page.html")).substitute(
        style=style,
        style_hash=f"sha256-{style_hash}",
        generator=f"elmo_plugin {__version__}",
        title=escape(title),
        summary=f"{summary}.",
        contents=_contents_html(results),
        sections="\n".join(sections),
    )


def _packaged(name: str) -> str:
    return resources.files("elmo_plugin.report").joinpath(name).read_text(encoding="utf-8")


def _anchor(number: int) -> str:
    return f"table-{number}"


def _contents_html(results: ResultsFolder) -> str:
    lines = ["<ul>"]
    numbered = enumerate(results.sections, start=1)
    for folder, group in groupby(numbered, key=lambda entry: entry[1].folder):
        if folder:
            lines.append(f'<li><span class="group">{escape(folder)}</span>\n<ul>')
        for number, section in group:
            failed = num_failed(section.table)
            mark = f' <span class="failed">{failed} failed</span>' if failed else ""
            link = f'<a href="#{_anchor(number)}">{with_code(section.table.title)}</a>'
            lines.append(f"<li>{link}{mark}</li>")
        if folder:
            lines.append("</ul></li>")
    if results.other_pictures:
        lines.append(f'<li><a href="#{_OTHER_PICTURES_ANCHOR}">{_OTHER_PICTURES}</a></li>')
    return "\n".join([*lines, "</ul>"])


def _section_html(section: TableSection, anchor: str) -> str:
    table = section.table
    heading = f"{anchor}-title"
    parts = [
        f'<section id="{anchor}" aria-labelledby="{heading}">',
        f'<h2 id="{heading}">{with_code(table.title)}</h2>',
        _source_html(section),
        # Keyboards scroll what has the focus.
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{heading}">',
        table_html(table),
        "</div>",
    ]
    if table.notes:
        notes = "\n".join(f"<p>{with_code(note)}</p>" for note in table.notes)
        parts.append(f'<div class="notes">\n{notes}\n</div>')
    for picture in section.pictures:
        caption = f"{table.title}: {picture.label}" if picture.label else table.title
        parts.append(_figure_html(picture, caption, "The numbers are in the table above."))
    if table.settings:
        parts.append(_settings_html(table.settings))
    return "\n".join([*parts, "</section>"])


def _source_html(section: TableSection) -> str:
    failed = num_failed(section.table)
    name = section.csv_file.name
    csv = data_uri("text/csv", section.csv_file.read_bytes())
    parts = [
        f"<span>{escape(section.name)}</span>",
        f"<span>{_counted(len(section.table.rows), 'row')}</span>",
        f'<span class="failed">{_counted(failed, "cell")} failed</span>' if failed else "",
        f'<a download="{escape(name)}" href="{csv}">{escape(name)}</a>',
    ]
    return f'<p class="source">{"".join(parts)}</p>'


def _figure_html(picture: PictureFiles, caption: str, hint: str = "") -> str:
    embedded = embed_picture(picture.paths)
    wide = ' class="wide"' if embedded.width > _MAX_NARROW else ""
    alternative = escape(f"Picture. {caption}. {hint}".strip())
    return (
        "<figure>\n"
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f'<img{wide} src="{embedded.uri}" width="{embedded.width}" height="{embedded.height}" '
        f'alt="{alternative}"></div>\n'
        f"<figcaption>{with_code(caption)}</figcaption>\n"
        "</figure>"
    )


def _other_pictures_html(pictures: List[PictureFiles]) -> str:
    heading = f"{_OTHER_PICTURES_ANCHOR}-title"
    figures = "\n".join(_figure_html(picture, picture.label) for picture in pictures)
    return (
        f'<section id="{_OTHER_PICTURES_ANCHOR}" aria-labelledby="{heading}">\n'
        f'<h2 id="{heading}">{_OTHER_PICTURES}</h2>\n{figures}\n</section>'
    )


def _settings_html(settings: Dict[str, Any]) -> str:
    entries = "\n".join(
        f"<dt>{escape(name)}</dt>\n<dd><code>{escape(value)}</code></dd>"
        for name, value in _flat(settings)
    )
    return f"<details>\n<summary>Settings</summary>\n<dl>\n{entries}\n</dl>\n</details>"


def _flat(settings: Dict[str, Any], prefix: str = "") -> Iterator[Tuple[str, str]]:
    """Settings in settings with dots between their names, as `--overrides` has them; values as text."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{name}.")
        elif isinstance(value, str):
            yield name, value
        elif isinstance(value, list) and all(isinstance(item, (str, int, float)) for item in value):
            yield name, ", ".join(map(str, value))
        else:
            yield name, json.dumps(value, ensure_ascii=False)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
