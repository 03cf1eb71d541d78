"""
Files and JSON of strangers: each is read correctly, or refused with one clear error.

What was accepted is checked too, against a second reading that is written here. Some files are valid, and
must be accepted.
"""

import gzip
import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Iterator, List

import h5py
import numpy

from attacks import FIXTURES
from attacks.mutations import mutated_bytes, mutated_json, odd_lines, odd_word
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.embedding.sentences import CORPUS_OPTIONS, InputOptions, SentenceSource
from elmo_plugin.errors import ConfigurationError

PROMISE = "files of strangers are read correctly, or refused with one clear error"
MAX_MESSAGE_LENGTH = 10_000
VALID_SHARE = 0.1  # of trials


@contextmanager
def one_clear_error(*names: str, is_valid: bool = False) -> Iterator[None]:
    """
    Accept a `ConfigurationError` whose message can be printed and contains one of the names; none for what
    is valid.
    """
    try:
        yield
    except ConfigurationError as error:
        message = str(error)
        check(f"no error: {message}", not is_valid)
        check("a message that can be printed", bool(message.strip()) and _is_printable(message))
        check(
            f"at most {MAX_MESSAGE_LENGTH} characters: {message[:200]}",
            len(message) <= MAX_MESSAGE_LENGTH,
        )
        check(
            f"a message with {' or '.join(names)}: {message}",
            any(name in message for name in names),
        )


def _is_printable(message: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in message)


def _is_valid(random: Random) -> bool:
    return random.random() < VALID_SHARE


def _written(random: Random, path: Path, value: Any) -> None:
    """Write a mutated JSON value, or the value with mutated bytes."""
    if random.random() < 0.7:
        path.write_text(json.dumps(mutated_json(random, value)))
    else:
        path.write_bytes(mutated_bytes(random, json.dumps(value).encode()))


def options(folder: Path) -> Trial:
    """`BiLMOptions.from_file`, with the options of both kinds of models."""
    path = folder / "options.json"
    models = [FIXTURES / "bilm/tiny", FIXTURES / "bilm/many_langs/both"]
    # Those of ELMoForManyLangs with its dictionaries.
    values = [BiLM.from_files(model).options.to_dict() for model in models]

    def trial(random: Random) -> None:
        value, is_valid = random.choice(values), _is_valid(random)
        if is_valid:
            path.write_text(json.dumps(value))
        else:
            _written(random, path, value)
        with one_clear_error(str(path), is_valid=is_valid):
            found = BiLMOptions.from_file(path)
            check(
                "options that equal what they are saved as",
                BiLMOptions.from_dict(found.to_dict()) == found,
            )

    return trial


def vocabulary(folder: Path) -> Trial:
    """`LMVocabulary.from_file`: plain lines, and words with counts."""
    path = folder / "vocab.txt"
    words = [*SPECIALS, "the", "of", "été", "😀", "1,000"]
    plain = "".join(f"{word}\n" for word in words).encode()
    counted = "".join(f"{word} {100 - place}\n" for place, word in enumerate(words)).encode()

    def trial(random: Random) -> None:
        data, is_valid = random.choice([plain, counted]), _is_valid(random)
        if not is_valid:
            data = mutated_bytes(random, data)
        if not is_valid and random.random() < 0.2:
            data = "".join(f"{word}\n" for word in SPECIALS).encode() + odd_lines(random).encode(
                "utf-8", "surrogatepass"
            )
        path.write_bytes(data)
        with one_clear_error(str(path), is_valid=is_valid):
            found = LMVocabulary.from_file(path)
            check("the special entries", sorted(found.words[:3]) == sorted(SPECIALS))
            check("each word once", len(set(found.words)) == len(found))
            lines = data.decode("utf-8-sig").rstrip("\n").split("\n")
            firsts = [re.sub("[ \t]+[0-9]{1,18}$", "", line.removesuffix("\r")) for line in lines]
            check("the words of the file", found.words == firsts or len(found) == len(lines))
            found.to_file(path)
            check("what it is saved as", LMVocabulary.from_file(path).words == found.words)

    return trial


def text(folder: Path) -> Trial:
    """Sentences of text files, plain and compressed, in both ways to treat blank lines."""

    def trial(random: Random) -> None:
        is_valid = _is_valid(random)
        content = "It rains .\nÉté 😀" if is_valid else odd_lines(random)
        data = content.encode("utf-8", "surrogatepass")
        if not is_valid and random.random() < 0.3:
            data = mutated_bytes(random, data)
        is_compressed = random.random() < 0.3
        path = folder / ("text.txt.gz" if is_compressed else "text.txt")
        stored = gzip.compress(data, 1) if is_compressed else data
        is_damaged = is_compressed and not is_valid and random.random() < 0.5
        path.write_bytes(mutated_bytes(random, stored) if is_damaged else stored)
        reading = random.choice([InputOptions(skip_blank=True), InputOptions(), CORPUS_OPTIONS])
        with one_clear_error(str(path), is_valid=is_valid):
            found = [
                (item.line_index, item.tokens) for item in SentenceSource(path, reading).sentences()
            ]
            if not is_damaged:
                lines = data.decode("utf-8-sig").split("\n")
                expected = [
                    (index, line.split()) for index, line in enumerate(lines) if line.split()
                ]
                check(f"the tokens {expected}, found {found}", found == expected)

    return trial


def parquet(folder: Path) -> Trial:
    """Sentences in a column of a Parquet file: types, nulls, lists of tokens, and damaged bytes."""
    import pyarrow
    from pyarrow import parquet as pyarrow_parquet

    path = folder / "text.parquet"

    def trial(random: Random) -> None:
        is_valid = _is_valid(random)
        values = [_odd_cell(random) for _ in range(random.randint(0, 20))]
        kinds = ["string", "large_string", "list", "dictionary", "bytes", "number"]
        if is_valid:
            values, kinds = ["It rains .", "Été 😀"] * 5, kinds[:4]
        kind = random.choice(kinds)
        is_list = kind == "list"
        if kind == "bytes":
            array = pyarrow.array([value.encode() for value in values], pyarrow.binary())
        elif kind == "number":
            array = pyarrow.array(range(len(values)))
        elif is_list:
            array = pyarrow.array(
                [value.split(" ") for value in values], pyarrow.list_(pyarrow.string())
            )
        else:
            types = {"string": pyarrow.string(), "large_string": pyarrow.large_string()}
            array = pyarrow.array(values, types.get(kind, pyarrow.string()))
            array = array.dictionary_encode() if kind == "dictionary" else array
        columns = ["sentence"] if is_valid else ["sentence", "sentence", "text"]
        table = pyarrow.table({random.choice(columns): array})
        pyarrow_parquet.write_table(
            table, path, compression=random.choice(["snappy", "gzip", "none"]), row_group_size=7
        )
        is_damaged = not is_valid and random.random() < 0.4
        if is_damaged:
            path.write_bytes(mutated_bytes(random, path.read_bytes()))
        with one_clear_error(str(path), is_valid=is_valid):
            reading = InputOptions(skip_blank=True)
            found = [
                (item.line_index, item.tokens) for item in SentenceSource(path, reading).sentences()
            ]
            if not is_damaged:
                tokens = [value.split(" ") if is_list else value.split() for value in values]
                expected = [item for item in enumerate(tokens) if "".join(item[1]).strip()]
                check(f"the tokens {expected}, found {found}", found == expected)

    return trial


def _odd_cell(random: Random) -> str:
    return odd_lines(random, max_lines=1, max_words=4).encode("utf-8", "ignore").decode()


# Readers of tasks, and their files.
TASK_FILES = [
    ("elmo_ner", "ner/tiny/train.conll"),
    ("elmo_srl", "srl/tiny/train.gold_conll"),
    ("elmo_coref", "coref/tiny/train.gold_conll"),
    ("elmo_sst", "sst/tiny/train.txt"),
    ("elmo_snli", "snli/tiny/train.jsonl"),
    ("elmo_squad", "squad/tiny/train.json"),
]


def task_files(folder: Path) -> Trial:
    """The readers of the tasks: what they accept becomes tensors."""
    from allennlp.data import Batch, DatasetReader, Vocabulary

    import elmo_plugin.plugin  # noqa: F401 - registers the readers

    readers = [
        (FIXTURES / file, DatasetReader.by_name(name)(**options))
        for name, file in TASK_FILES
        for options in ({}, {"skip_invalid": True})
    ]

    def trial(random: Random) -> None:
        original, reader = random.choice(readers)
        path, is_valid = folder / original.name, _is_valid(random)
        if is_valid:
            path.write_bytes(original.read_bytes())
        else:
            _write_task_file(random, original.read_bytes(), path)
        with one_clear_error(str(path), is_valid=is_valid):
            instances = list(reader.read(path))
            check("an instance", bool(instances))
            batch = Batch(instances)
            batch.index_instances(Vocabulary.from_instances(instances))
            batch.as_tensor_dict()

    return trial


def _write_task_file(random: Random, data: bytes, path: Path) -> None:
    if path.suffix == ".json" and random.random() < 0.7:
        _written(random, path, json.loads(data))
    elif path.suffix == ".jsonl" and random.random() < 0.7:
        lines = [line for line in data.decode().splitlines() if line]
        place = random.randrange(len(lines))
        lines[place] = json.dumps(mutated_json(random, json.loads(lines[place])))
        path.write_text("\n".join(lines))
    elif random.random() < 0.5:
        path.write_text(_with_mutated_fields(random, data.decode()), "utf-8", "surrogatepass")
    else:
        path.write_bytes(mutated_bytes(random, data))


def _with_mutated_fields(random: Random, text: str) -> str:
    """Change columns of some lines: words between white space."""
    lines = text.split("\n")
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(lines))
        fields = re.split("([ \t]+)", lines[place])
        index = random.randrange(len(fields))
        others = re.split("[ \t]+", random.choice(lines))
        fields[index] = random.choice(
            [odd_word(random), "", random.choice(others), fields[index] * 2]
        )
        lines[place] = "".join(fields)
        if random.random() < 0.3:
            lines.insert(place, random.choice(lines))
    return "\n".join(lines)


def weights(folder: Path) -> Trial:
    """`BiLM.from_files`: types, shapes, links, external data, filters, and damaged bytes."""
    path = folder / "weights.hdf5"
    options_file = FIXTURES / "bilm/tiny/options.json"
    original = (FIXTURES / "bilm/tiny/weights.hdf5").read_bytes()
    with h5py.File(FIXTURES / "bilm/tiny/weights.hdf5", "r") as file:
        names: List[str] = []
        file.visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        arrays = {name: file[name][...] for name in names}
    secret = folder / "secret.hdf5"
    shutil.copy(FIXTURES / "bilm/tiny/weights.hdf5", secret)
    plain = BiLM.from_files(options_file, secret)
    expected = {name: value.detach().numpy() for name, value in plain.named_parameters()}

    def trial(random: Random) -> None:
        is_exact, is_valid = True, _is_valid(random)
        if not is_valid and random.random() < 0.4:
            path.write_bytes(mutated_bytes(random, original))
            is_exact = False
        else:
            path.write_bytes(original)
            with h5py.File(path, "r+") as file:
                for name in () if is_valid else random.sample(names, random.randint(1, 2)):
                    is_exact &= _mutate_dataset(random, file, name, arrays[name], secret)
        with one_clear_error(str(path), is_valid=is_valid):
            found = BiLM.from_files(options_file, path)
            with h5py.File(path, "r") as file:
                check("an error for data of another file", not _refers_elsewhere(file, names))
                has_floats = all(file[name].dtype.kind == "f" for name in names)
                check("an error for what are no floating-point numbers", has_floats)
            for name, parameter in found.named_parameters():
                value = parameter.detach().numpy()
                check(f"finite weights in {name}", bool(numpy.isfinite(value).all()))
                if is_exact:
                    check(
                        f"the weights of the file in {name}",
                        numpy.array_equal(value, expected[name]),
                    )

    return trial


def _refers_elsewhere(file: Any, names: List[str]) -> bool:
    for name in names:
        if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
            return True
        if file[name].is_virtual or file[name].external:
            return True
    return False


def _mutate_dataset(
    random: Random, file: Any, name: str, array: numpy.ndarray, secret: Path
) -> bool:
    """Change a dataset of a file. Return whether its values are still the same, if it is read at all."""
    if name in file:
        del file[name]
    kind = random.randrange(14)
    if kind == 0:
        file[name.upper()] = array
    elif kind == 1:
        file[name] = array.astype(random.choice(["f8", ">f4", ">f8", "<f8"]))
    elif kind == 2:
        file[name] = array.astype(random.choice(["f2", "i1", "u8", "c8", "?", "S4"]))
        return False
    elif kind == 3:
        file[name] = array[..., :-1]
    elif kind == 4:
        file[name] = array.T if array.ndim > 1 else array[None]
        # A square matrix has the shape that was expected.
        return array.shape != array.T.shape
    elif kind == 5:
        file[name] = array * random.choice([numpy.nan, numpy.inf, 1e38, 0])
        return False
    elif kind == 6:
        compression = random.choice(["gzip", "lzf", None])
        file.create_dataset(
            name, data=array, compression=compression, shuffle=True, fletcher32=True, chunks=True
        )
    elif kind == 7:
        file[name] = h5py.ExternalLink(str(secret), name)
    elif kind == 8:
        file[name] = h5py.SoftLink(random.choice(["/nowhere", f"/{name}", "/"]))
    elif kind == 9:
        layout = h5py.VirtualLayout(array.shape, array.dtype)
        layout[...] = h5py.VirtualSource(str(secret), name, array.shape)
        file.create_virtual_dataset(name, layout)
    elif kind == 10:
        external = [(str(secret), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset(name, array.shape, array.dtype, external=external)
        return False
    elif kind == 11:
        file.create_group(name)
    elif kind == 12:
        # Unwritten chunks take no space in the file.
        huge = tuple(2**20 for _ in array.shape)
        file.create_dataset(name, huge, array.dtype, chunks=tuple(16 for _ in array.shape))
    else:
        file[name] = random.choice(["text", 1.5, numpy.zeros(0, "f4"), h5py.Empty("f4")])
    return True


ATTACKS = [
    Attack(prepare.__name__, PROMISE, prepare)
    for prepare in (options, vocabulary, text, parquet, weights, task_files)
]
