import json
import logging
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Instance, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token, Tokenizer
from allennlp.models import load_archive
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks import EvenBatchSampler, RuleBasedTokenizer
from elmo_plugin.tasks.reading import (
    ClassField,
    TaskReader,
    checked_words,
    placed_lines,
)
from tests.pretraining.workers import reports_of_workers
from tests.tasks.task_testing import experiment_of


def test_blank_lines_are_skipped_but_numbered(tmp_path: Path) -> None:
    path = write(tmp_path, "\n a\u00a0b \r\n\t\nc")
    assert list(placed_lines(path, "one tree")) == [
        (f"{path}, line 2", "a\u00a0b"),
        (f"{path}, line 4", "c"),
    ]


@pytest.mark.parametrize(
    "words, arguments, message",
    [
        ([], [], "^found a sentence without tokens, expected at"),
        (["a", "@@PADDING@@"], [], "^found the token @@PADDING@@ in a sentence"),
        ([], ["premise"], "^found a premise without tokens"),
    ],
)
def test_text_without_tokens_is_refused(
    words: List[str], arguments: List[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        checked_words([Token(word) for word in words], *arguments)


@pytest.mark.parametrize("labels", [["good"], ["good", "good", "bad"], ["so_so", "good", "bad"]])
def test_the_vocabulary_always_has_all_classes_in_order(labels: List[str]) -> None:
    fields = [ClassField(label, ("bad", "so_so", "good")) for label in labels]
    vocab = Vocabulary.from_instances([Instance({"label": field}) for field in fields])
    assert vocab.get_index_to_token_vocabulary("labels") == {0: "bad", 1: "so_so", 2: "good"}


def test_a_long_link_takes_no_more_than_its_first_characters() -> None:
    marks = {"start_tokens": ["<w>"], "end_tokens": ["</w>"]}
    params = Params({"type": "elmo_word_characters", "character_tokenizer": marks})
    indexer = TokenIndexer.from_params(params)
    counts: Dict[str, Any] = {"token_characters": Counter()}
    words = [Token("né"), Token("a" * 199 + "bc")]
    for word in words:
        indexer.count_vocab_items(word, counts)
    assert counts["token_characters"] == Counter("néb" + "a" * 199) + Counter(["<w>", "</w>"] * 2)
    vocab = Vocabulary(counts)
    characters = [
        [vocab.get_token_from_index(index, "token_characters") for index in word]
        for word in indexer.tokens_to_indices(words, vocab)["token_characters"]
    ]
    assert characters == [["<w>", "n", "é", "</w>"], ["<w>", *"a" * 199, "b", "</w>"]]


TOKENIZER = RuleBasedTokenizer()


@given(st.text())
def test_tokens_and_white_space_make_up_the_text(text):
    end = 0
    for token in TOKENIZER.tokenize(text):
        assert text[end : token.idx].strip() == ""
        assert text[token.idx : token.idx_end] == token.text
        assert token.text.strip() != ""
        end = token.idx_end
    assert text[end:].strip() == ""


def test_text_may_be_longer_than_a_spacy_pipeline_allows():
    assert len(TOKENIZER.tokenize("word " * 250_000)) == 250_000


def test_language_decides_the_rules():
    with pytest.raises(ConfigurationError, match="language is 'qq', expected the code of a lang"):
        RuleBasedTokenizer(language="qq")
    german = Tokenizer.from_params(Params({"type": "elmo_rule_based", "language": "de"}))
    assert [token.text for token in german.tokenize("Er kam ca. um zwei.")] == (
        ["Er", "kam", "ca.", "um", "zwei", "."]
    )


class WordReader(TaskReader):
    """A line is a record; each word an instance. `bad` is bad at the end of a line, `-` has no label."""

    def _records(self, file_path: Any) -> Iterator[Tuple[str, Any]]:
        return placed_lines(file_path, "words")

    def _instances(self, record: str, counts: Counter) -> Iterable[Instance]:
        for word in record.split():
            if word == "bad":
                raise ConfigurationError("found bad")
            if word == "-":
                counts["words without a label left out"] += 1
            else:
                yield Instance({"word": TextField([Token(word)])})


def words(instances: Iterable[Instance]) -> List[str]:
    return [instance["word"].tokens[0].text for instance in instances]


def write(folder: Path, text: str) -> Path:
    path = folder / "words.txt"
    path.write_text(text)
    return path


def test_bad_records_are_left_out_whole_where_asked_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "a b\nc bad\nd -\nbad\n")
    with pytest.raises(ConfigurationError, match=f"^{path}, line 2: found bad$"):
        list(WordReader().read(path))
    with caplog.at_level(logging.WARNING):
        assert words(WordReader(skip_invalid=True).read(path)) == ["a", "b", "d"]
    assert f"Left out (skip_invalid): {path}, line 2: found bad" in caplog.text
    assert f"{path}: 2 invalid left out (4 records read)" in caplog.text
    assert f"{path}: 1 words without a label left out (4 records read)" in caplog.text


@pytest.mark.parametrize(
    "number, expected", [(1, ["a"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c", "d"])]
)
def test_max_instances_counts_instances_not_records(
    number: int, expected: List[str], tmp_path: Path
) -> None:
    path = write(tmp_path, "-\n-\na b\n-\nc\nd\n")
    reader = WordReader(max_instances=number)
    for _ in ("training", "validation"):
        assert words(reader.read(path)) == expected


def test_workers_share_the_records_and_may_find_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a b\n-\nc\n-\n")
    reader = WordReader()
    loader = MultiProcessDataLoader(
        reader, path, batch_size=1, num_workers=2, max_instances_in_memory=2, quiet=True
    )
    assert sorted(words(loader.iter_instances())) == ["a", "b", "c"]


@pytest.mark.parametrize("rank, expected", [(0, ["a", "c"]), (1, ["b", "d"])])
def test_workers_share_the_records_of_a_list_of_files_with_one_each(
    rank: int, expected: List[str], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{word}.txt" for word in "abcd"]
    for path in paths:
        path.write_text(path.stem)
    reader = WordReader()
    reader._set_worker_info(WorkerInfo(num_workers=2, id=rank))
    assert words(reader.read(paths)) == expected


@pytest.mark.parametrize(
    "content, message",
    [
        (None, r"data file: .*lines\.txt"),
        (..., r"lines\.txt: cannot be read \(.*Is a directory"),
        ("\n \n", r"lines\.txt: found no data, expected a file as WordReader reads it"),
        ("It\nS\udce3o\n", r"line 2: found the bytes b'\\xe3', expected UTF"),
    ],
)
def test_a_file_without_valid_lines_is_refused(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    if content is ...:
        path.mkdir()
    elif content is not None:
        path.write_text(content, errors="surrogateescape")
    with pytest.raises(ConfigurationError, match=message):
        list(WordReader().read(path))


# Lengths of the sentences of both workers, and the sizes of their batches.
CASES = {
    "one has a batch more": ([[3, 9, 1, 4, 7], [2, 8, 6]], [[2, 2, 1], [1, 1, 1]]),
    "one has fewer sentences than the other has batches": (
        [[3, 9, 1, 4, 7], [8, 2]],
        [[3, 2], [1, 1]],
    ),
    "both have the same": ([[1, 2, 3, 4], [5, 6, 7, 8]], [[2, 2], [2, 2]]),
}


SAMPLER = EvenBatchSampler(batch_size=2, sorting_keys=["tokens"])


def sentences(lengths: List[int]) -> List[Instance]:
    return [Instance({"tokens": TextField([Token("a")] * length)}) for length in lengths]


def batches_of(lengths: List[int]) -> List[List[int]]:
    """The batches of a worker, as lengths of sentences."""
    indices = SAMPLER.get_batch_indices(sentences(lengths))
    return [[lengths[index] for index in batch] for batch in indices]


def work(rank: int) -> Dict[str, Any]:
    report: Dict[str, Any] = {name: batches_of(case[0][rank]) for name, case in CASES.items()}
    try:
        report["error"] = batches_of([[1, 2], []][rank])
    except ConfigurationError as error:
        report["error"] = str(error)
    return report


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> List[Dict[str, Any]]:
    return reports_of_workers(work, tmp_path_factory.mktemp("workers"))


@pytest.mark.parametrize("case", CASES)
def test_workers_have_the_same_number_of_batches_with_all_sentences(
    reports: List[Dict[str, Any]], case: str
) -> None:
    for report, lengths, sizes in zip(reports, *CASES[case]):
        batches = report[case]
        assert [len(batch) for batch in batches] == sizes
        assert [length for batch in batches for length in batch] == sorted(lengths)


def test_a_worker_without_sentences_is_an_error_of_all(reports: List[Dict[str, Any]]) -> None:
    for report in reports:
        assert "has no validation data, expected at least one instance for each" in report["error"]


def test_a_single_process_has_batches_of_similar_length() -> None:
    assert batches_of([3, 9, 1, 4, 7]) == [[1, 3], [4, 7], [9]]
    assert SAMPLER.get_num_batches(sentences([3, 9, 1, 4, 7])) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_distributed_training_validates_on_all_data_and_leaves_an_archive(tmp_path: Path) -> None:
    config = experiment_of("ner").as_dict()
    data = config["validation_data_path"]
    # One worker has four sentences, the other three.
    sampler = {"type": "elmo_even", "batch_size": 1, "sorting_keys": ["tokens"]}
    config.update(
        validation_dataset_reader={**deepcopy(config["dataset_reader"]), "max_instances": 7},
        validation_data_loader={"batch_sampler": sampler},
        distributed={"cuda_devices": [-1, -1]},
        test_data_path=data,
        evaluate_on_test=True,
    )
    config["trainer"]["num_epochs"] = 20
    folder = tmp_path / "run"
    train_model(Params(config), folder, include_package=["elmo_plugin"])
    archive = load_archive(folder)
    instances = list(archive.validation_dataset_reader.read(data))
    for instance in instances:
        archive.validation_dataset_reader.apply_token_indexers(instance)
    model = archive.model.eval()
    model.forward_on_instances(instances)
    found = json.loads((folder / "metrics.json").read_text())
    best = {name: found[f"best_validation_{name}"] for name in model.get_metrics()}
    assert best == pytest.approx(model.get_metrics())
    assert len(instances) == 7 and 0 < best["f1"] < 1
