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
from elmo_plugin.pretraining.corpus_files import expand_corpus, read_sentences
from elmo_plugin.pretraining.sentence_streams import DIRECTIONS, marked_sentence
from elmo_plugin.pretraining.word_vocabulary import WORDS_NAMESPACE


@DatasetReader.register("elmo_bilm")
class BiLMReader(DatasetReader):
    """
    Reads a corpus of tokenized sentences, one on each line, words separated by white space.

    Every sentence is an instance, which the biLM reads from zeros. Use this to score sentences, or to train
    on whole sentences with AllenNLP's own loaders. To train on streams, whose rows continue from batch to
    batch, use a `data_loader` of type `elmo_bilm_streams`, which gets the vocabulary from this reader and
    reads the files itself.

    An instance holds four fields, where a sentence of `n` words has `n + 1` timesteps: `forward_inputs` and
    `backward_inputs`, `(timesteps, 50)`, are the character ids of the words to read; `forward_targets` and
    `backward_targets`, `(timesteps,)`, are the vocabulary's indices of the words that follow. All padding is
    zero. Zero is also the target `<S>`, so only the inputs show where padding is.

    Registered as a `DatasetReader` with name `elmo_bilm`.

    # Parameters

    vocabulary_file : `str`
        The words that the softmax predicts, in bilm-tf's format; `elmo vocab` writes such a file.
        Other words are read from their characters, like all words, and predicted as `<UNK>`.
    serialization_dir : `str`, optional
        Filled in by AllenNLP. If the vocabulary file of an archive no longer exists, the archive's own copy
        of the words is used.

    # Attributes

    vocabulary : `LMVocabulary`
        The content of that file.

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
        """
        # Parameters

        tokens : `List[str]`
            The words of a sentence, at least one, without sentence marks.

        # Raises

        `ConfigurationError` if there are no words.
        """
        if not tokens:
            raise ConfigurationError("Found a sentence without words, expected at least one word.")
        fields: Dict[str, Field] = {}
        for direction in DIRECTIONS:
            marked = marked_sentence(tokens, direction)
            inputs = batch_to_ids([marked[:-1]])[0]  # (timesteps, 50)
            targets = torch.tensor(
                [self.vocabulary.index_of(word) for word in marked[1:]]
            )  # (timesteps,)
            fields[f"{direction}_inputs"] = TensorField(inputs)
            fields[f"{direction}_targets"] = TensorField(targets)
        return Instance(fields)

    def files(self, data_path: Union[str, PathLike, List[str]]) -> List[Path]:
        """
        Return the files of a corpus, see `expand_corpus`.

        # Parameters

        data_path : `str`, `PathLike` or `List[str]`
            A path or glob, or a list of them.
        """
        return expand_corpus(data_path if isinstance(data_path, list) else [str(data_path)])

    def _read(self, file_path: Union[str, PathLike, List[str]]) -> Iterable[Instance]:
        sentences = (words for path in self.files(file_path) for words in read_sentences(path))
        for words in self.shard_iterable(sentences):
            yield self.text_to_instance(words)


def _archived_words(folder: Optional[str], vocabulary_file: str) -> Optional[Path]:
    """Return the file of words in the folder of an archive, if it is there and the vocabulary file is not."""
    if folder is None or vocabulary_file in pretrained_names() or Path(vocabulary_file).exists():
        return None
    path = Path(folder) / VOCABULARY_FOLDER / f"{WORDS_NAMESPACE}.txt"
    return path if path.is_file() else None
