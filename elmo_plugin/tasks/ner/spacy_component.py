"""Named entities in spaCy: the pipeline component `elmo_ner`."""

import os
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy
from allennlp.data.tokenizers import Token as TaskToken
from allennlp.models import Archive
from allennlp.predictors import Predictor
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch
from torch import Tensor

from elmo_plugin.compat.archives import opened_archive, save_archive
from elmo_plugin.embedding.elmo_embedder import checked_device
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.spacy_component import SentenceComponent, add_vector_hooks
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.tasks.ner.model import NerTagger
from elmo_plugin_spacy import ElmoNerOptions


class TaggedSentence(NamedTuple):
    """
    The words of a sentence, tokens that are not white space; its entities, `(start, end, label)` of words,
    end exclusive; and, if the tagger has ELMo, the vectors of the words, `(num_words, dim)`.
    """

    words: List[Token]
    entities: List[Tuple[int, int, str]]
    vectors: Optional[numpy.ndarray]


class ElmoNerComponent(SentenceComponent):
    """
    Find the named entities of docs with a trained tagger of this package:
    `nlp.add_pipe("elmo_ner", config={"archive": "elmo_ner_mini"})`.

    The component sets `doc.ents`, in place of entities that are there already. In the same pass of the biLM
    it sets `doc.tensor`, `(num_tokens, dim)`: the ELMo representation that the tagger reads, the mix of
    layers that it learned, without dropout. With ELMo at several places it is that of the first place; a
    tagger without ELMo sets entities only. Vectors and similarities come from `doc.tensor`, as with the
    component `elmo`, whose notes on serialization of docs and on several processes apply here too.

    Tokens of white space are not read. Their vectors are zeros. The tagger reads one sentence at a time: put
    the component after the one that sets sentence boundaries.

    A saved pipeline includes the whole tagger with its biLM. `spacy.load` reads it, and not the archive named
    in the config.

    # Parameters

    nlp, name
        See `SentenceComponent`.
    options : `ElmoNerOptions`
        The config.

    # Raises

    `ConfigurationError` for an archive that cannot be loaded, that of a model of another type, and invalid
    options.
    """

    def __init__(self, nlp: Language, name: str, options: ElmoNerOptions) -> None:
        BatchOptions(options.batch_size)
        # `None` only until the files of a saved pipeline are loaded.
        self._archive: Optional[Archive] = None
        self._elmo: Optional[Elmo] = None
        super().__init__(nlp, name, options)

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write the archive of the tagger into the folder, which is made if it does not exist."""
        if self._archive is None:
            self._load()
        assert self._archive is not None
        save_archive(self._archive, path)

    def from_disk(
        self, path: Union[str, Path], *, exclude: Iterable[str] = ()
    ) -> "ElmoNerComponent":
        """
        Load the tagger from a folder that `to_disk` wrote.

        # Raises

        `ConfigurationError` as the constructor.
        """
        self._load_archive(path)
        return self

    def __getstate__(self) -> Dict[str, Any]:
        # Embedders of AllenNLP cannot be pickled.
        return {"name": self.name, "options": self.options, "content": self.to_bytes()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.name, self.options = state["name"], state["options"]
        self.from_bytes(state["content"])

    def _load(self) -> None:
        self._load_archive(self.options.archive)

    def _load_archive(self, archive_file: Union[str, Path]) -> None:
        checked_device(self.options.cuda_device)
        archive = opened_archive(archive_file, cuda_device=self.options.cuda_device)
        if not isinstance(archive.model, NerTagger):
            raise ConfigurationError(
                f"archive: {archive_file} holds a model of type {archive.config['model'].get('type')}, "
                "expected elmo_ner. Give the archive of a tagger of named entities."
            )
        self._archive = archive
        self._predictor = Predictor.from_archive(archive, "elmo_ner")
        self._elmo = next(
            (module for module in archive.model.modules() if isinstance(module, Elmo)), None
        )
        self._loading_process = os.getpid()

    def _is_loaded(self) -> bool:
        return self._archive is not None

    def _results(self, sentences: Iterable[List[Token]]) -> Iterator[TaggedSentence]:
        words = ([token for token in sentence if not token.is_space] for sentence in sentences)
        return chain.from_iterable(map(self._tagged, minibatch(words, self.options.batch_size)))

    def _tagged(self, sentences: List[List[Token]]) -> Iterator[TaggedSentence]:
        """Tag a batch of sentences, some of which may have no words."""
        assert self._archive is not None
        read = self._archive.validation_dataset_reader.text_to_instance
        instances = [
            read([TaskToken(token.text) for token in words]) for words in sentences if words
        ]
        representations: List[Tensor] = []  # (num_instances, timesteps, dim), of one pass

        def keep(elmo: Elmo, inputs: Any, output: Dict[str, Any]) -> None:
            representations.append(output["elmo_representations"][0])

        hook = None if self._elmo is None else self._elmo.register_forward_hook(keep)
        tagged: Dict[int, Tuple[List[Dict[str, Any]], Optional[numpy.ndarray]]] = {}
        try:
            for positions, outputs in self._predictor.outputs_in_batches(instances):
                vectors = representations.pop().cpu().numpy() if representations else None
                for row, (position, output) in enumerate(zip(positions, outputs)):
                    answer = self._predictor.readable_output([instances[position]], [output])
                    tagged[position] = answer["spans"], None if vectors is None else vectors[row]
        finally:
            if hook is not None:
                hook.remove()
        results = iter([tagged[position] for position in range(len(instances))])
        for words in sentences:
            spans, vectors = next(results) if words else ([], None)
            yield TaggedSentence(
                words,
                [(span["start"], span["end"], span["label"]) for span in spans],
                None if vectors is None else vectors[: len(words)],
            )

    def _fill(self, doc: Doc, sentences: List[List[Token]], results: List[TaggedSentence]) -> None:
        doc.set_ents(
            [
                Span(doc, words[start].i, words[end - 1].i + 1, label)
                for words, entities, _ in results
                for start, end, label in entities
            ],
            default="outside",
        )
        if self._elmo is None:
            return
        doc.tensor = numpy.zeros((len(doc), self._elmo.get_output_dim()), dtype=numpy.float32)
        for words, _, vectors in results:
            if vectors is not None:
                doc.tensor[[token.i for token in words]] = vectors
        add_vector_hooks(doc)
