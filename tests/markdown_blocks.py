"""The blocks of code and the links of Markdown files, for tests of what a document shows."""

import re
from pathlib import Path
from typing import List, NamedTuple

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


class CodeBlock(NamedTuple):
    """
    A block of code: its language (the word after the opening fence), and the text between the fences.
    """

    language: str
    text: str


def code_blocks(markdown: str, *languages: str) -> List[CodeBlock]:
    """Return the blocks in these languages, in order; without languages, all blocks that name one."""
    blocks = [CodeBlock(*match.groups()) for match in _BLOCK.finditer(markdown)]
    return [block for block in blocks if not languages or block.language in languages]


def broken_links(page: Path) -> List[str]:
    """Return the links and pictures of a page that lead to no file, or to no heading; no web addresses."""
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8"))
    broken = []
    for file, anchor in links:
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(f"{file}#{anchor}")
    return broken


def _anchors(page: Path) -> List[str]:
    """Return the anchors of all headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
