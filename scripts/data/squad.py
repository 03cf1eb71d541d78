"""XQuAD's English and the whole development set of SQuAD 1.1, in the form of SQuAD 1.1."""

import html
import json
import re
from itertools import cycle
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

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


def answer_start(context: str, question: str, answer: str) -> int:
    """
    Return where the text of an answer stands in a paragraph. Pages have no positions. If it occurs several
    times, that is the place in the sentence with most words of the question, the first one of equals.
    """
    asked = set(words_of(question))
    sentences = [match.span() for match in re.finditer(r".+?(?:[.!?](?=\s)|$)", context, re.DOTALL)]

    def num_shared(start: int) -> int:
        begin, end = next(span for span in sentences if span[0] <= start < span[1])
        return len(asked & set(words_of(context[begin:end])))

    return max(occurrences(context, answer), key=num_shared)


def occurrences(context: str, answer: str) -> List[int]:
    """Return where an answer occurs: as whole words, unless it is always a part of one."""
    text = re.escape(answer)
    patterns = rf"(?<!\w)(?={text}(?!(?<=\w)\w))", f"(?={text})"
    whole, all_starts = ([m.start() for m in re.finditer(p, context)] for p in patterns)
    return whole or all_starts


def words_of(text: str) -> List[str]:
    return re.findall(r"\w+", text.lower())


def read_question(part: str, context: str) -> Dict[str, Any]:
    """Return a question of a page, see `answer_start`."""
    truths = part.split("Ground Truth Answers")[1].split("</li>")[0]
    texts = find_texts(r'<span class="answer">(.*?)</span>', truths) or find_texts(
        r"<span[^>]*>(.*?)</span>", truths
    )
    question = find_texts(r'<strong class="question">(.*?)</strong>', part)[0].strip()
    return {
        "id": re.findall(r'data-id="([^"]+)"', part)[0],
        "question": question,
        "answers": [
            {"answer_start": answer_start(context, question, text), "text": text}
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


def answers_in(articles: List[Article]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Yield the id of its question, and each answer."""
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                for answer in question["answers"]:
                    yield question["id"], answer


def set_positions(articles: List[Article], known: List[Article]) -> None:
    """Give answers the positions of the same answers to the same questions in `known`."""
    positions = {(id_, answer["text"]): answer["answer_start"] for id_, answer in answers_in(known)}
    for id_, answer in answers_in(articles):
        answer["answer_start"] = positions.get((id_, answer["text"]), answer["answer_start"])


def official_dev(sources: Path, data: Path) -> Dict[str, str]:
    """
    Every sixth article and those of XQuAD's dev part are held out: by turns test, and dev, to choose an epoch
    on. The others are train. XQuAD has one answer to each of its questions, and its position.
    """
    articles: List[Article] = []
    for path in list_files(SQUAD_EXPLORER.folder(sources) / "explore" / "1.1" / "dev", "*.html"):
        if path.name != "index.html":
            paragraphs = read_page(path.read_bytes().decode("utf-8"))
            if paragraphs:
                articles.append({"title": path.stem, "paragraphs": paragraphs})
    known = {
        part: json.loads(read_text(data / "squad" / f"{part}.json"))["data"]
        for part in ("train", "dev")
    }
    set_positions(articles, [*known["train"], *known["dev"]])
    dev_titles = {article["title"] for article in known["dev"]}
    parts: Dict[str, List[Article]] = {"train": [], "dev": [], "test": []}
    held_out = cycle(("test", "dev"))
    for i, article in enumerate(articles):
        is_held_out = article["title"] in dev_titles or i % 6 == 0
        parts[next(held_out) if is_held_out else "train"].append(article)
    return {
        f"{part}-v1.1.json": json.dumps({"version": "1.1", "data": chosen}, ensure_ascii=False)
        for part, chosen in parts.items()
    }
