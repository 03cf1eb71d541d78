"""The files of a corpus, and the reader."""

from pathlib import Path
from typing import List

import pytest
import torch
from allennlp.data import Batch, Vocabulary
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.embedding.sentences import read_sentences
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMReader
from elmo_plugin.pretraining.corpus import LMWordVocabulary, find_corpus, predicted_words


@pytest.fixture
def vocabulary_file(tmp_path: Path) -> str:
    path = tmp_path / "vocabulary.txt"
    path.write_text("<S>\n</S>\n<UNK>\nIt\nrains\n")
    return str(path)


@pytest.fixture
def reader(vocabulary_file: str) -> BiLMReader:
    return BiLMReader(vocabulary_file)


def spelled(*words: str) -> List[List[int]]:
    return batch_to_ids([words])[0].tolist()


# What else is read: tests/embedding/sentences_test.py.
def test_a_corpus_is_files_that_may_have_blank_lines_and_control_characters(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("It rains .\n\n \t\nthe \x96duels\n", "utf-8")
    files = find_corpus([f"{tmp_path}/*"])
    assert list(read_sentences(files)) == [["It", "rains", "."], ["the", "\x96duels"]]
    # It is read several times.
    with pytest.raises(ConfigurationError, match="standard input can be read only once"):
        find_corpus("-")


def test_sentences_are_predicted_in_both_directions_and_padding_is_zero(
    reader: BiLMReader, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("Hail\n")
    (tmp_path / "a.txt").write_text("It rains café\n\n", "utf-8")
    batch = Batch(list(reader.read(str(tmp_path / "[ab].txt")))).as_tensor_dict()
    padding = [[0] * 50] * 2
    assert batch["forward_inputs"].tolist() == [
        spelled("<S>", "It", "rains", "café"),
        spelled("<S>", "Hail") + padding,
    ]
    assert batch["backward_inputs"].tolist() == [
        spelled("</S>", "café", "rains", "It"),
        spelled("</S>", "Hail") + padding,
    ]
    assert batch["forward_targets"].tolist() == [[3, 4, 2, 1], [2, 1, 0, 0]]
    assert batch["backward_targets"].tolist() == [[2, 4, 3, 0], [2, 0, 0, 0]]
    assert batch["forward_targets"].dtype == torch.long


def test_workers_read_different_sentences(vocabulary_file: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("It\nrains\nIt rains\n")
    targets = []
    for number in range(2):
        reader = BiLMReader(vocabulary_file)
        reader._set_worker_info(WorkerInfo(num_workers=2, id=number))
        instances = list(reader.read(str(tmp_path / "text.txt")))
        targets.append([one["forward_targets"].tensor.tolist() for one in instances])
    assert targets == [[[3, 1], [3, 4, 1]], [[4, 1]]]


def test_words_are_the_same_after_they_were_in_an_archive(tmp_path: Path) -> None:
    # AllenNLP gives a meaning of their own to the first three.
    words = ["@@NEWLINE@@", "@@UNKNOWN@@", "@@PADDING@@", "a\0b", "\x1b[0m", "\ufeff", "a\u00a0b"]
    path = tmp_path / "vocab.txt"
    LMVocabulary([*SPECIALS, *words]).to_file(path)
    vocab = LMWordVocabulary.from_vocabulary_file(str(path))
    vocab.save_to_files(str(tmp_path / "vocabulary"))
    for of_archive in (vocab, Vocabulary.from_files(str(tmp_path / "vocabulary"))):
        assert predicted_words(of_archive)[3:] == words


def test_an_archive_is_read_with_its_own_words(tmp_path: Path, vocabulary_file: str) -> None:
    archived = tmp_path / "archive" / "vocabulary" / "lm_words.txt"
    archived.parent.mkdir(parents=True)
    archived.write_text("<S>\n</S>\n<UNK>\nIt\nhails\n")
    folder = str(tmp_path / "archive")
    # Not of a training, which may have been killed while AllenNLP wrote this file.
    reader = BiLMReader(vocabulary_file, serialization_dir=folder)
    assert reader.vocabulary.words[3:] == ["It", "rains"]
    # Its paths can be relative to another folder than the current one.
    (tmp_path / "archive" / "best.th").touch()
    for name, word in (("gone.txt", "hails"), (vocabulary_file, "rains")):
        reader = BiLMReader(name, serialization_dir=folder)
        assert reader.vocabulary.words[3:] == ["It", word]
    (tmp_path / "archive" / "weights.th").touch()
    # A file of this name in the folder of the user can be another one.
    for name in ("gone.txt", vocabulary_file, "elmo_mini"):
        reader = BiLMReader(name, serialization_dir=folder)
        assert reader.vocabulary.words[3:] == ["It", "hails"]
    archived.unlink()
    assert len(BiLMReader("elmo_mini", serialization_dir=folder).vocabulary) == 20000
    with pytest.raises(ConfigurationError, match=r"gone\.txt: cannot be read"):
        BiLMReader("gone.txt", serialization_dir=folder)
