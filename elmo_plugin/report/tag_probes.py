"""Linear classifiers of parts of speech: trained on the vectors of each layer, and scored."""

import logging
import time
from typing import Dict, List, NamedTuple, Sequence

import numpy

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.report.layer_scores import LayerKey, LayerScores, Measure
from elmo_plugin.report.layer_vectors import embed_in_blocks, embed_tokens, named_layers
from elmo_plugin.report.linear_probe import LinearProbe, fit_probe
from elmo_plugin.report.probe_options import RANDOM_WEIGHTS, ProbeOptions
from elmo_plugin.report.tagged_text import FrequentTags, TaggedSentence, tags_of

ACCURACY, UNSEEN_ACCURACY = Measure("accuracy"), Measure("accuracy on unseen words")
MOST_FREQUENT = LayerKey("most frequent tag of the word", "")

_TEST_BLOCK = 512  # sentences whose vectors are held together

logger = logging.getLogger(__name__)


class TagDivision(NamedTuple):
    """
    What a seed makes of the data.

    # Parameters

    training : `List[TaggedSentence]`
        To fit classifiers to.
    held_out : `List[TaggedSentence]`
        To choose their regularization by.
    test : `List[TaggedSentence]`
        To score them with.
    """

    training: List[TaggedSentence]
    held_out: List[TaggedSentence]
    test: List[TaggedSentence]


class TagScores(NamedTuple):
    """
    # Parameters

    scores : `LayerScores`
        `ACCURACY` and, if the test part has words that the training part has not, `UNSEEN_ACCURACY`: one of
        each for each seed.
    strengths : `Dict[LayerKey, List[float]]`
        The regularization that each seed chose.
    unfinished : `List[str]`
        Which classifiers were stopped before their training came to its end.
    """

    scores: LayerScores
    strengths: Dict[LayerKey, List[float]]
    unfinished: List[str]


def probe_tags(
    options: ProbeOptions,
    bilm: BiLM,
    divisions: Dict[int, TagDivision],
    strengths: Sequence[float],
) -> TagScores:
    """
    Fit and score a classifier for each seed, biLM and layer, and score the baseline `MOST_FREQUENT`.

    # Parameters

    options : `ProbeOptions`
        Says how biLMs are run, and whether there is a control.
    bilm : `BiLM`
        What is looked at.
    divisions : `Dict[int, TagDivision]`
        By seed.
    strengths : `Sequence[float]`
        See `fit_probe`.
    """
    result = TagScores(LayerScores(), {}, [])
    for seed, division in divisions.items():
        baseline = FrequentTags(division.training)
        test = _TestPart(division.test, baseline)
        found = numpy.array([baseline.tag(word) for word in test.words])
        test.add_scores(result.scores, MOST_FREQUENT, found)
        embedders = {options.bilm_name: options.embedder(bilm)}
        if options.control:
            embedders[RANDOM_WEIGHTS] = options.control_embedder(bilm, seed)
        for name, embedder in embedders.items():
            probes = _fit_probes(f"seed {seed}, {name}", embedder, division, strengths)
            for layer, found in _found_tags(embedder, division.test, probes).items():
                key = LayerKey(name, layer)
                test.add_scores(result.scores, key, found)
                result.strengths.setdefault(key, []).append(probes[layer].strength)
                if not probes[layer].has_converged:
                    result.unfinished.append(f"seed {seed}, {name}, layer {layer}")
    return result


class _TestPart:
    def __init__(self, sentences: Sequence[TaggedSentence], baseline: FrequentTags) -> None:
        self.words = [word for sentence in sentences for word in sentence.words]
        self._tags = tags_of(sentences)
        self._is_unseen = numpy.array([not baseline.knows(word) for word in self.words])

    def add_scores(self, scores: LayerScores, key: LayerKey, found: numpy.ndarray) -> None:
        """`found` are the tags of the words, `(num_words,)`."""
        is_right = found == self._tags
        scores.add(key, ACCURACY, 100 * float(is_right.mean()))
        if self._is_unseen.any():
            scores.add(key, UNSEEN_ACCURACY, 100 * float(is_right[self._is_unseen].mean()))


def _fit_probes(
    described: str, embedder: ElmoEmbedder, division: TagDivision, strengths: Sequence[float]
) -> Dict[str, LinearProbe]:
    """By layer."""
    sentences = [*division.training, *division.held_out]
    words = [sentence.words for sentence in sentences]
    # (num_layers, num_words, dim)
    vectors = embed_tokens(embedder, words, description="training part")
    tags = tags_of(sentences)
    num_training = len(tags_of(division.training))
    probes = {}
    for layer, layer_vectors in named_layers(vectors):
        start = time.monotonic()
        probes[layer] = fit_probe(
            layer_vectors[:num_training],
            tags[:num_training],
            layer_vectors[num_training:],
            tags[num_training:],
            strengths,
        )
        seconds = time.monotonic() - start
        strength = probes[layer].strength
        logger.info("%s, layer %s: C = %g after %.0f s", described, layer, strength, seconds)
    return probes


def _found_tags(
    embedder: ElmoEmbedder, sentences: Sequence[TaggedSentence], probes: Dict[str, LinearProbe]
) -> Dict[str, numpy.ndarray]:
    """By layer, `(num_words,)`."""
    words = [sentence.words for sentence in sentences]
    found: Dict[str, List[numpy.ndarray]] = {layer: [] for layer in probes}
    for vectors in embed_in_blocks(embedder, words, _TEST_BLOCK, description="test part"):
        for layer, layer_vectors in named_layers(vectors):
            found[layer].append(probes[layer].predict(layer_vectors))
    return {layer: numpy.concatenate(blocks) for layer, blocks in found.items()}
