"""Random damage to bytes, text and JSON values."""

import copy
from random import Random
from typing import Any, List, Tuple

ODD_TEXT = [
    # White space, of which some ends lines, and characters that are hardly seen.
    *("", " ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"),
    *("\x00", "\x7f", "\ufeff", "\u00a0", "\u3000", "\u200b", "\u0301", "\ud83d", "\U0001f600"),
    # Words around the limit of 50 characters.
    *("é", "ÿ" * 60, "a" * 49, "a" * 50, "a" * 51, "a" * 10_000),
    # What means something in a vocabulary, a data set, a path, JSON, a number or a page.
    *("<S>", "</S>", "<UNK>", "-DOCSTART-", "#", "#begin document (a); part 000", "(0", "0)"),
    *("(V*)", "B-", "I-PER", "...!?,;:", "../../etc/passwd", "{}", "[]", '"', "\\", "-1", "1e400"),
    *("NaN", "9" * 5000, "%s", "<script>alert(1)</script>"),
]
ODD_VALUES: List[Any] = [
    *(None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**400),
    *(0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "0", "relu", "\ud83d"),
    *([], {}, [[]], [None], {"": None}, [0] * 1000),
]


def mutated_bytes(random: Random, data: bytes) -> bytes:
    """Damage 1 to 4 places: flipped bits, and slices that are removed, repeated, moved or replaced."""
    for _ in range(random.randint(1, 4)):
        first = random.randint(0, len(data))
        last = min(len(data), first + random.choice([1, 1, 2, 4, 8, random.randint(1, 500)]))
        piece = data[first:last]
        kind = random.randrange(7)
        if kind == 0 and piece:
            piece = bytes([piece[0] ^ 1 << random.randrange(8)]) + piece[1:]
        elif kind == 1:
            piece = b""
        elif kind == 2:
            piece = piece * random.choice([2, 3, 100])
        elif kind == 3:
            piece = random.randbytes(len(piece))
        elif kind == 4:
            piece += random.choice(ODD_TEXT).encode("utf-8", "surrogatepass")
        elif kind == 5:
            other = random.randint(0, len(data))
            piece = data[other : other + len(piece)]
        else:
            piece = bytes([random.choice([0, 1, 127, 128, 255])]) * len(piece)
        data = data[:first] + piece + data[last:]
        if random.random() < 0.05:
            data = data[: random.randint(0, len(data))]
    return data


def odd_word(random: Random) -> str:
    """Return a word or white space as it is found in the text of strangers."""
    if random.random() < 0.3:
        return random.choice(ODD_TEXT)
    alphabet = random.choice(["ab", "aé", "あ漢", "😀", "0123", "a-'", ".,;"])
    return "".join(random.choices(alphabet, k=random.randint(1, 12)))


def odd_token(random: Random) -> str:
    """Return an odd word that UTF-8 can encode."""
    return odd_word(random).replace("\ud83d", "?")


def odd_lines(random: Random, max_lines: int = 12, max_words: int = 12) -> str:
    """Return text with unusual words, spaces and line ends."""
    separators = [" ", " ", " ", "\t", "  ", "\u00a0", "\u3000", ""]
    line_ends = ["\n", "\n", "\n", "\n\n", "\r\n", "\r", "\u2028", ""]
    text = ""
    for _ in range(random.randint(0, max_lines)):
        for _ in range(random.randint(0, max_words)):
            text += odd_word(random) + random.choice(separators)
        text += random.choice(line_ends)
    return text


def mutated_json(random: Random, value: Any) -> Any:
    """Return a copy of a value with 1 to 3 of its parts replaced, removed, added or renamed."""
    root = [copy.deepcopy(value)]
    for _ in range(random.randint(1, 3)):
        parent, key = random.choice(_places(root))
        if isinstance(parent, dict) and random.random() < 0.3:
            part = parent.pop(key)
            if random.random() < 0.5:
                parent[random.choice([str(key).upper(), f"{key} ", *ODD_TEXT])] = part
        elif isinstance(parent, list) and parent is not root and random.random() < 0.3:
            if random.random() < 0.5:
                del parent[key]
            else:
                parent.insert(key, copy.deepcopy(parent[key]))
        else:
            parent[key] = odd_value(random, parent[key])
    return root[0]


def odd_value(random: Random, value: Any) -> Any:
    """Return what may stand in the place of a JSON value."""
    kind = random.randrange(5)
    if kind == 0 and isinstance(value, int) and abs(value) < 2**63:
        return random.choice(
            [-value, value + 1, value - 1, value * 1000, value / 2, str(value)[:9]]
        )
    if kind == 0 and isinstance(value, str):
        place = random.randint(0, len(value))
        return value[:place] + odd_word(random) + value[place:]
    if kind == 1:
        return [copy.deepcopy(value)]
    if kind == 2:
        nested: Any = value
        for _ in range(random.choice([2, 50, 150])):
            nested = [nested] if random.random() < 0.5 else {"a": nested}
        return nested
    if kind == 3:
        return random.choice(ODD_TEXT)
    return copy.deepcopy(random.choice(ODD_VALUES))


def _places(root: List[Any]) -> List[Tuple[Any, Any]]:
    """Return each part of a value, as its parent and its key there."""
    places: List[Tuple[Any, Any]] = []
    stack: List[Any] = [root]
    while stack:
        parent = stack.pop()
        items = parent.items() if isinstance(parent, dict) else enumerate(parent)
        for key, part in items:
            places.append((parent, key))
            if isinstance(part, (dict, list)):
                stack.append(part)
    return places
