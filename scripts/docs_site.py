"""
What mkdocs.yml adds to docs/: pages made from files beside it, and docstrings in the form of this project.

mkdocs calls `on_files` and `on_page_markdown`; griffe, which reads the sources for the reference, finds
`Docstrings`.
"""

import argparse
import functools
import posixpath
import re
from pathlib import Path
from typing import Any, Dict

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from elmo_plugin.commands.main import COMMANDS, LazyParser, declare_command
from elmo_plugin.commands.report import REPORTS, declare_report

REPOSITORY = Path(__file__).parents[1]

# Pages that are files of the project's root.
PAGES = {
    "PERFORMANCE.md": "performance.md",
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}

# Where a page has the help of the commands.
_COMMANDS_PLACE = "<!-- the help of the commands -->"

# By the address of a page, the path of the file outside of docs/ that it was made from.
_SOURCES: Dict[str, str] = {}

_HelpFormatter = functools.partial(
    argparse.RawDescriptionHelpFormatter, max_help_position=28, width=88
)

_LANGUAGES = {".jsonnet": "jsonnet", ".libsonnet": "jsonnet", ".py": "python", ".sh": "bash"}

# The target of a link to a file, without its anchor, not of an address in the web.
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")
_DRAWING = re.compile(r'<img [^>]*src="[./]*([^"]+\.svg)"[^>]*>')
# Names, which may take more than a line; perhaps a type; and indented lines, perhaps with blank ones between.
_PARAMETER = re.compile(
    r"^(\*{0,2}\w[\w*]*(?:,\s\*{0,2}\w[\w*]*)*)(?: : (.+))?\n((?: {4}.+(?:\n+|$))+)", re.MULTILINE
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the project's root, and a page for each file outside of docs/ that a page links to."""
    waiting = [*PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        if not path.startswith("docs/"):
            files.append(_page(path, text, config))
        if path.endswith(".md"):
            linked = {_linked_file(path, link) for link in _LINK.findall(text)}
            new = sorted(file for file in linked - seen if not file.startswith("docs/"))
            seen.update(new)
            waiting.extend(new)
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files lead to the pages of these files."""
    uri = page.file.src_uri
    if _COMMANDS_PLACE in markdown:
        markdown = markdown.replace(_COMMANDS_PLACE, commands_help())
    source = _SOURCES.get(uri, f"docs/{uri}")
    if not source.endswith(".md"):
        return markdown
    folder = posixpath.dirname(uri) or "."
    return _LINK.sub(
        lambda link: posixpath.relpath(_page_uri(_linked_file(source, link[0])), folder), markdown
    )


def on_page_content(html: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page itself, where they take its colors."""
    return _DRAWING.sub(
        lambda image: (
            f'<div class="drawing">{(REPOSITORY / "docs" / image[1]).read_text("utf-8")}</div>'
        ),
        html,
    )


class Docstrings(griffe.Extension):
    """Make Markdown of docstrings."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)


def commands_help() -> str:
    """Return a section of Markdown for each command and each report, with its help."""
    declarations = {name: functools.partial(declare_command, name) for name in COMMANDS}
    declarations |= {f"report {name}": functools.partial(declare_report, name) for name in REPORTS}
    parts = []
    for name, declare in declarations.items():
        parser = LazyParser(prog=f"elmo {name}", formatter_class=_HelpFormatter)
        declare(parser)
        parts.append(f"## elmo {name}\n\n```text\n{parser.format_help()}```")
    return "\n\n".join(parts)


def markdown_of(docstring: str) -> str:
    """
    Return a docstring of this project as Markdown for the site: titles of sections, such as `# Parameters`,
    as lines in bold, and parameters and attributes as definition lists.
    """
    text, *sections = re.split(r"^# (.+)\n", docstring, flags=re.MULTILINE)
    for title, section in zip(sections[::2], sections[1::2]):
        if title.endswith(("Parameters", "Attributes")):
            section = _PARAMETER.sub(_definition, section)
        text = f"{text.rstrip()}\n\n**{title}**\n\n{section}"
    return text


def _definition(parameter: "re.Match[str]") -> str:
    names, kind, lines = parameter.groups()
    term = f"`{' '.join(names.split())}`" + (f" : {kind}" if kind else "")
    return f"\n{term}\n:   {lines.strip()}\n"


def _linked_file(source: str, link: str) -> str:
    """Return the path in the repository of what a file of this path there links to."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if not (REPOSITORY / path).is_file():
        raise PluginError(f"{source} links to {link}, expected a file of the project.")
    return path


def _page_uri(path: str) -> str:
    """Return where in the site the page for a file of the repository is."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path) or f"files/{path}" + ("" if path.endswith(".md") else ".md")


def _page(path: str, text: str, config: MkDocsConfig) -> File:
    """Make the page for a file outside of docs/. The search finds no sources."""
    if not path.endswith(".md"):
        text = f"# {path}\n\n````{_LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"
    if path not in PAGES:
        text = f"---\nsearch:\n  exclude: true\n---\n\n{text}"
    page = File.generated(config, _page_uri(path), content=text)
    _SOURCES[page.src_uri] = path
    return page
