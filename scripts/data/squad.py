"""XQuAD's English and the whole development set of SQuAD 1.1, in the form of SQuAD 1.1."""

import html
import json
import re
from pathlib import Path
from typing import Any, Dict, List

from sources import SQUAD_EXPLORER, XQUAD, list_files, read_text

Article = Dict[str, Any]


def xquad(sources: Path, data: Path) -> Dict[str, str]:
    """Every fifth article is dev, the others are train."""
    articles = json.loads(read_text(XQUAD.folder(sources) / "xquad.en.json"))["data"]
    dev = articles[4::5]
    train = [article for i, article in enumerate(articles) if i % 5 != 4]
    return {
        name: json.dumps({"version": "1.1", "data": part}, ensure_ascii=False, indent=1) + "\n"
        for name, part in (("train.json", train), ("dev.json", dev))
    }


def find_texts(pattern: str, page: str) -> List[str]:
    return [html.unescape(text) for text in re.findall(pattern, page, re.DOTALL)]


def read_question(part: str, context: str) -> Dict[str, Any]:
    """Return a question of a page. Pages have no positions: an answer starts where its text first occurs."""
    truths = part.split("Ground Truth Answers")[1].split("</li>")[0]
    texts = find_texts(r'<span class="answer">(.*?)</span>', truths) or find_texts(
        r"<span[^>]*>(.*?)</span>", truths
    )
    return {
        "id": re.findall(r'data-id="([^"]+)"', part)[0],
        "question": find_texts(r'<strong class="question">(.*?)</strong>', part)[0].strip(),
        "answers": [
            {"answer_start": context.find(text), "text": text}
            for text in texts
            if text and text in context
        ],
    }


def read_page(page: str) -> List[Dict[str, Any]]:
    """Return the paragraphs of a page of the explorer, with the questions that have an answer."""
    paragraphs = []
    for part in page.split('<div class="para-wrap">')[1:]:
        context = find_texts(r"<pre>(.*?)</pre>", part)[0]
        questions = [
            read_question(piece, context) for piece in part.split('<div class="qa-wrap"')[1:]
        ]
        answered = [question for question in questions if question["answers"]]
        if answered:
            paragraphs.append({"context": context, "qas": answered})
    return paragraphs


def official_dev(sources: Path, data: Path) -> Dict[str, str]:
    """Every sixth article is dev, and so are those of XQuAD's dev part; the others are train."""
    articles: List[Article] = []
    for path in list_files(SQUAD_EXPLORER.folder(sources) / "explore" / "1.1" / "dev", "*.html"):
        if path.name != "index.html":
            paragraphs = read_page(path.read_bytes().decode("utf-8"))
            if paragraphs:
                articles.append({"title": path.stem, "paragraphs": paragraphs})
    xquad_dev = json.loads(read_text(data / "squad" / "dev.json"))["data"]
    dev_titles = {article["title"] for article in xquad_dev}
    parts: Dict[str, List[Article]] = {"train": [], "dev": []}
    for i, article in enumerate(articles):
        parts["dev" if article["title"] in dev_titles or i % 6 == 0 else "train"].append(article)
    return {
        f"{part}-v1.1.json": json.dumps({"version": "1.1", "data": chosen}, ensure_ascii=False)
        for part, chosen in parts.items()
    }
