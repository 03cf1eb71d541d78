"""Running text to tokenized sentences by rules for English, in the manner of the Penn Treebank."""

import re
from typing import Iterator, List

MIN_TOKENS, MAX_TOKENS = 3, 100

ABBREVIATION_LIST = """
    mr mrs ms dr st messrs mme mlle jr sr prof capt col gen lieut lt maj sergt sgt rev hon gov sen rep esq vs
    viz etc e.g i.e no nos vol chap pp fig co inc ltd bros jan feb mar apr jun jul aug sept sep oct nov dec
    a.m p.m mt ft gent supt adm cf ed anon ibid
"""
ABBREVIATIONS = set(ABBREVIATION_LIST.split())
# These take a full stop but also end sentences, so a capital after them starts a new one.
MAY_END_A_SENTENCE = {"etc", "esq", "jr", "sr", "a.m", "p.m", "co", "inc", "ltd", "no", "st"}
# Words that start with an apostrophe of their own.
ELISION_LIST = """
    tis twas twere twill twould twixt em un ud ee cause bout pon gainst neath mongst ere im er ow ave ad at
"""
ELISIONS = set(ELISION_LIST.split())
CLITICS = {"'s", "'d", "'ll", "'re", "'ve", "'m", "'t"}

SENTENCE_END = re.compile(r'([.!?]+)(["\')\]]*)\s+(?=(["\'(\[]*)([A-Z0-9À-Þ]|--))')

PLAIN_CHARACTERS = {
    "\u201c": '"',
    "\u201d": '"',
    "\u2018": "'",
    "\u2019": "'",
    "\u2014": "--",
    "\u2013": "-",
    "\u2026": "...",
    "\u00a0": " ",
    "`": "'",
    "''": '"',
    "_": "",
    "\ufeff": "",
    "\t": " ",
}


def clean(text: str) -> str:
    """Make quotes and dashes ASCII; remove italics and footnote marks."""
    for old, new in PLAIN_CHARACTERS.items():  # in this order: `` becomes '' and then "
        text = text.replace(old, new)
    text = re.sub(
        r"\[(\d+|\*+|Illustration[^\]]*|Greek text|omission|delta|musical notes)\]", " ", text
    )
    text = re.sub(r"\*", " ", text)
    text = re.sub(r"-{3,}", "--", text)
    return re.sub(r"\.(?:\s?\.){2,}", " ... ", text)


def split_sentences(paragraph: str) -> Iterator[str]:
    """Cut a paragraph behind full stops, unless they belong to an abbreviation or an initial."""
    start = 0
    for match in SENTENCE_END.finditer(paragraph):
        before = paragraph[start : match.start()].split()
        last = before[-1].lstrip("\"'([-").lower().split("--")[-1] if before else ""
        if match.group(1) == ".":
            if last in ABBREVIATIONS and last not in MAY_END_A_SENTENCE:
                continue
            if last in {"st", "no"} and match.group(4):
                continue
            if len(last) == 1 and last.isalpha() and last != "i":
                continue
        yield paragraph[start : match.end()].strip()
        start = match.end()
    rest = paragraph[start:].strip()
    if rest:
        yield rest


def split_word(word: str) -> List[str]:
    """Split a word without dashes, brackets or double quotes into leading quotes, stem, clitic and marks."""
    lead: List[str] = []
    while word.startswith("'") and len(word) > 1:
        bare = re.match(r"'([A-Za-z]+)", word)
        is_elision = (
            bare
            and bare.group(1).lower() in ELISIONS
            and (bare.group(1).islower() or word[1] in "TPBNG")
        )
        if word.lower() in CLITICS or is_elision or word[1].isdigit():
            break
        lead.append("'")
        word = word[1:]
    tail: List[str] = []
    while len(word) > 1:
        ends_in_quote = word[-1] == "'" and not word.lower().endswith(("in'", "o'", "th'"))
        if word[-1] in ",;:!?" or ends_in_quote:
            tail.insert(0, word[-1])
            word = word[:-1]
        elif word.endswith("...") and word != "...":
            tail.insert(0, "...")
            word = word[:-3]
        else:
            break
    if word.lower() == "cannot":
        stem = [word[:3], word[3:]]
    elif len(word) > 3 and word.lower().endswith("n't"):
        stem = [word[:-3], word[-3:]]
    else:
        match = re.match(r"^(.+)('(?:s|d|m|re|ve|ll))$", word, re.IGNORECASE)
        stem = [match.group(1), match.group(2)] if match else [word]
    return lead + stem + tail


def tokenize(sentence: str) -> List[str]:
    """Split a sentence into tokens; only its last full stop and those of no abbreviation are tokens."""
    text = re.sub(r'(["()\[\]{}])', r" \1 ", sentence)
    text = re.sub(r"--|(?<=[\s,;!?])-(?=[A-Za-z])", " -- ", text)
    text = re.sub(r"([$£])", r" \1 ", text)
    text = re.sub(r"([;!?]|:(?!\d)|,(?!\d))(?=\S)", r"\1 ", text)
    text = re.sub(r"(?<=[!?]) (?=[!?])", "", text)
    pieces = text.split()
    last = len(pieces) - 1
    while last > 0 and pieces[last] in {'"', "'", ")", "]"}:
        last -= 1
    tokens: List[str] = []
    for i, piece in enumerate(pieces):
        closing: List[str] = []
        while i == last and len(piece) > 1 and piece[-1] == "'" and piece[-2] in ".!?,":
            closing.insert(0, "'")
            piece = piece[:-1]
        if piece.endswith(".") and not piece.endswith("...") and len(piece) > 1:
            stem = piece[:-1].rstrip(".").lstrip("'").lower()
            is_initial = len(stem) == 1 and stem.isalpha() and stem != "i"
            if i == last or not (stem in ABBREVIATIONS or is_initial or "." in stem):
                tokens += [*split_word(piece[:-1]), ".", *closing]
                continue
        tokens += split_word(piece) + closing
    return tokens


def is_usable(tokens: List[str]) -> bool:
    """Tell whether a sentence is 3 to 100 tokens, mostly letters, without markup."""
    if not MIN_TOKENS <= len(tokens) <= MAX_TOKENS:
        return False
    joined = "".join(tokens)
    if re.search(r"[{}|<>=~^\\#]", joined):
        return False
    return sum(character.isalpha() for character in joined) * 2 >= len(joined)
