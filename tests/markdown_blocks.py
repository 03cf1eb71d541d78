"""The blocks of code in a Markdown file, for tests that run what a document shows."""

import re
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


def local_links(markdown: str) -> List[str]:
    """Return the paths that links and pictures lead to, without anchors, sorted; no web addresses."""
    return sorted(set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", markdown)))


def section_anchors(markdown: str) -> List[str]:
    """Return the anchors of all headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", markdown, flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
