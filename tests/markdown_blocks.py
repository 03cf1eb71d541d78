"""The blocks of code in a Markdown file, for tests that run what a document shows."""

import re
from typing import List, NamedTuple

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


class CodeBlock(NamedTuple):
    """
    # Parameters

    language : `str`
        The word after the opening fence.
    text : `str`
        What stands between the fences.
    """

    language: str
    text: str


def code_blocks(markdown: str, *languages: str) -> List[CodeBlock]:
    """The blocks in these languages, in order; all blocks that name a language, if none is given."""
    blocks = [CodeBlock(*match.groups()) for match in _BLOCK.finditer(markdown)]
    return [block for block in blocks if not languages or block.language in languages]


def local_links(markdown: str) -> List[str]:
    """The paths that links and pictures lead to, without anchors, sorted; no addresses of the web."""
    return sorted(set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", markdown)))


def section_anchors(markdown: str) -> List[str]:
    """The anchors of all headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", markdown, flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
