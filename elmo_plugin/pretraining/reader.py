"""Read the sentences of a language model's corpus."""

from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Union

import torch
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, TensorField

from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.model_files import pretrained_names
from elmo_plugin.compat.archives import VOCABULARY_FOLDER
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.sentence_streams import (
    DIRECTIONS,
    find_corpus,
    marked_sentence,
    read_sentences,
)
from elmo_plugin.pretraining.word_vocabulary import WORDS_NAMESPACE


@DatasetReader.register("elmo_bilm")
class BiLMReader(DatasetReader):
    """
    Reads a corpus of tokenized sentences, one on each line, words separated by white space.

    Every sentence is an instance, which the biLM reads from zeros, with AllenNLP's own loaders. To train on
    streams, whose rows continue from batch to batch, use a `data_loader` of type `elmo_bilm_streams`, which
    gets the vocabulary from this reader and reads the files itself.

    An instance of `n` words has `n + 1` timesteps: `forward_inputs` and `backward_inputs`, `(timesteps, 50)`,
    are the character ids of the words to read; `forward_targets` and `backward_targets`, `(timesteps,)`, are
    the vocabulary's indices of the words that follow. All padding is zero. Zero is also the target `<S>`, so
    only the inputs show where padding is.

    Registered as a `DatasetReader` with name `elmo_bilm`.

    # Parameters

    vocabulary_file : `str`
        The words that the softmax predicts, in bilm-tf's format; `elmo vocab` writes such a file.
        Other words are read from their characters, like all words, and predicted as `<UNK>`.
    serialization_dir : `str`, optional
        Filled in by AllenNLP. If the vocabulary file of an archive no longer exists, the archive's own copy
        of the words is used.

    # Raises

    `ConfigurationError` if that file has no valid vocabulary; and, while reading, for files that are
    missing, empty or not UTF-8.
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
        """Return the instance of a sentence without marks. Raise `ConfigurationError` if it has no words."""
        if not tokens:
            raise ConfigurationError("Found a sentence without words, expected at least one word.")
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
    """Return the file of words in the folder of an archive, if it exists and the vocabulary file does not."""
    if folder is None or vocabulary_file in pretrained_names() or Path(vocabulary_file).exists():
        return None
    path = Path(folder) / VOCABULARY_FOLDER / f"{WORDS_NAMESPACE}.txt"
    return path if path.is_file() else None
