"""The text of a biLM's training: files of sentences, the words that are predicted, and the reader of both."""

from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterable, List, Literal, Optional, Sequence, Union

import torch
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.fields import Field, TensorField

from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.compat.archives import VOCABULARY_FOLDER
from elmo_plugin.embedding.sentences import (
    CORPUS_OPTIONS,
    SentenceSource,
    find_sources,
    read_sentences,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo_archives import ARCHIVED_WEIGHTS, BEST_NAME

Direction = Literal["forward", "backward"]
DIRECTIONS: Sequence[Direction] = ("forward", "backward")

WORDS_NAMESPACE = "lm_words"


def find_corpus(data_path: Union[str, PathLike, Sequence[str]]) -> List[SentenceSource]:
    """Return the files of a corpus: of paths, folders and globs, see `find_sources`. Pipes are refused."""
    sources = find_sources(data_path, CORPUS_OPTIONS)
    for source in sources:
        if not source.is_file:
            raise ConfigurationError(
                f"corpus: {source.name} can be read only once, expected files. Write the text to a file."
            )
    return sources


def check_apart(train: List[SentenceSource], heldout: List[SentenceSource], where: str) -> None:
    """Refuse a file in both: its perplexity would be that of text that was trained on."""
    trained_on = {source.file_id for source in train} - {None}
    shared = [source.name for source in heldout if source.file_id in trained_on]
    if shared:
        raise ConfigurationError(
            f"{where}: {', '.join(shared)} is held out, and also among the files to train on, expected "
            "different files: perplexity is measured on text that a biLM has not read. Move it, or name the "
            "files to train on."
        )


def marked_sentence(words: List[str], direction: Direction) -> List[str]:
    """
    Return a sentence in reading order, with its marks: every word except the last is an input, and the word
    after it its target, which gives `len(words) + 1` predictions.

    The backward direction reads from `</S>` to `<S>`. So the forward direction never reads `</S>`, and the
    backward direction never reads `<S>`, as in bilm-tf.
    """
    begin, end = SPECIALS[:2]
    marked = [begin, *words, end]
    return marked if direction == "forward" else marked[::-1]


@Vocabulary.register("elmo_lm_words", constructor="from_vocabulary_file")
class LMWordVocabulary(Vocabulary):
    """
    AllenNLP's vocabulary with the words of a bilm-tf vocabulary file, in the order of the file, in the
    namespace `lm_words`. It is part of an archive, so that a trained biLM can be exported without the file.

    # Parameters

    vocabulary_file : `str`
        See `LMVocabulary`.
    """

    @classmethod
    def from_vocabulary_file(cls, vocabulary_file: str) -> "LMWordVocabulary":
        """Build the vocabulary of a config."""
        words = LMVocabulary.from_file(vocabulary_file).words
        return cls(tokens_to_add={WORDS_NAMESPACE: words}, non_padded_namespaces=[WORDS_NAMESPACE])


def predicted_words(vocab: Vocabulary) -> List[str]:
    """Return the words that a biLM with this vocabulary predicts, by index."""
    words = vocab.get_index_to_token_vocabulary(WORDS_NAMESPACE)
    # AllenNLP reads this text in the files of an archive as a line feed, which no word has.
    return [words[index].replace("\n", "@@NEWLINE@@") for index in range(len(words))]


def first_difference(found: List[str], expected: List[str]) -> str:
    """Describe how two vocabularies differ, for errors: "'a' in line 4, expected 'b'"."""
    if len(found) != len(expected):
        return f"{len(found):,} words, expected {len(expected):,}"
    line = next(line for line, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
    return f"'{found[line]}' in line {line + 1}, expected '{expected[line]}'"


@DatasetReader.register("elmo_bilm")
class BiLMReader(DatasetReader):
    """
    Reads a corpus of tokenized sentences, one on each line, words separated by white space.

    Every sentence is an instance, which the biLM reads from zeros, with AllenNLP's own loaders. To train on
    streams, whose rows continue from batch to batch, use a `data_loader` of type `elmo_bilm_streams`, which
    gets the vocabulary from this reader and reads the files itself.

    An instance of `n` words has `n + 1` timesteps: `forward_inputs` and `backward_inputs`, `(timesteps, 50)`,
    are the character ids of the words to read; `forward_targets` and `backward_targets`, `(timesteps,)`, are
    the vocabulary's indices of the words that follow. All padding is zero. Zero is also the index of the
    first special entry, so only the inputs show where padding is.

    # Parameters

    vocabulary_file : `str`
        The words that the softmax predicts, in bilm-tf's format; `elmo vocab` writes such a file.
        Other words are read from their characters, like all words, and predicted as `<UNK>`.
    serialization_dir : `str`, optional
        Filled in by AllenNLP. An archive has its own copy of the words, which is read in place of the file;
        so has the folder of a training, for a file that is not found.
    """

    def __init__(
        self, vocabulary_file: str, serialization_dir: Optional[str] = None, **kwargs: Any
    ) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self.vocabulary = LMVocabulary.from_file(
            _archived_words(serialization_dir, vocabulary_file) or vocabulary_file
        )

    def text_to_instance(self, tokens: List[str]) -> Instance:
        """Return the instance of a sentence without marks."""
        fields: Dict[str, Field] = {}
        for direction in DIRECTIONS:
            marked = marked_sentence(tokens, direction)
            fields[f"{direction}_inputs"] = TensorField(batch_to_ids([marked[:-1]])[0])
            fields[f"{direction}_targets"] = TensorField(self.targets(marked[1:]))
        return Instance(fields)

    def targets(self, words: List[str]) -> torch.Tensor:
        """Return the vocabulary's indices of words, `(len(words),)`."""
        return torch.tensor([self.vocabulary.index_of(word) for word in words], dtype=torch.long)

    def _read(self, file_path: Union[str, PathLike, List[str]]) -> Iterable[Instance]:
        for words in self.shard_iterable(read_sentences(find_corpus(file_path))):
            yield self.text_to_instance(words)


def _archived_words(folder: Optional[str], vocabulary_file: str) -> Optional[Path]:
    """
    Return the file of words in the folder of an archive, or in that of a training whose vocabulary file is
    not found, as its path is relative to another folder; otherwise `None`: at the start of a training
    AllenNLP may be writing its words, or have been stopped while it did.
    """
    if folder is None:
        return None
    is_archive = (Path(folder) / ARCHIVED_WEIGHTS).is_file()
    if not is_archive and (
        Path(vocabulary_file).exists() or not (Path(folder) / BEST_NAME).is_file()
    ):
        return None
    path = Path(folder) / VOCABULARY_FOLDER / f"{WORDS_NAMESPACE}.txt"
    return path if path.is_file() else None
