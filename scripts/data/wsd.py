"""The senses of *hard*, *interest*, *line* and *serve* in Senseval-2's sense-tagged text, as JSON lines."""

import json
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import Dict, List, Optional

from sources import NLTK_DATA


class Context:
    """The tokens of a context, and the places of its head words."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.tokens: List[str] = []
        self.heads: List[int] = []
        self._read(element, inside_head=False)

    def _read(self, element: ElementTree.Element, inside_head: bool) -> None:
        if element.tag == "wf":
            token = "".join("".join(element.itertext()).split())
            if token:
                if inside_head:
                    self.heads.append(len(self.tokens))
                self.tokens.append(token)
            return
        self._read_text(element.text)
        for child in element:
            self._read(child, inside_head or child.tag == "head")
            self._read_text(child.tail)

    def _read_text(self, text: Optional[str]) -> None:
        """Keep the few words that are outside of word elements."""
        words = (text or "").replace("curlyspace", " ").split()
        self.tokens += [word for word in words if word != "FRASL"]


def wsd(sources: Path, data: Path) -> Dict[str, str]:
    files = {}
    path = NLTK_DATA.folder(sources) / "packages" / "corpora" / "senseval.zip"
    with zipfile.ZipFile(path) as corpus:
        for word in ("hard", "interest", "line", "serve"):
            lines = []
            root = ElementTree.fromstring(corpus.read(f"senseval/{word}.pos"))
            for instance in root.iter("instance"):
                senses = [answer.get("senseid") for answer in instance.findall("answer")]
                element = instance.find("context")
                assert element is not None
                context = Context(element)
                if len(senses) == 1 and context.heads:
                    record = {
                        "tokens": context.tokens,
                        "index": context.heads[0],
                        "sense": senses[0],
                        "id": instance.get("id"),
                    }
                    lines.append(json.dumps(record, ensure_ascii=False) + "\n")
            files[f"{word}.jsonl"] = "".join(lines)
    return files
