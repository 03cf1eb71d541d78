"""The tables of `allennlp elmo-report wsd`."""

from typing import Any, Dict, List, Sequence

from elmo_plugin.report.layer_scores import LayerKey, LayerScores, Measure
from elmo_plugin.report.probe_options import RANDOM_WEIGHTS
from elmo_plugin.report.report_table import ReportTable
from elmo_plugin.report.sense_data import AmbiguousWord

ACCURACY, BALANCED = Measure("accuracy"), Measure("balanced accuracy")
MOST_FREQUENT = LayerKey("most frequent sense", "")

# Table 5: F1 on all words of four test sets, fine-grained, WordNet's first sense for words without training
# examples. By layer, of a biLM with two LSTM layers.
_PAPER = {MOST_FREQUENT.layer: 65.9, "1": 67.4, "2": 69.0}
_PAPER_NUM_LAYERS = 3


def sense_tables(
    words: Sequence[AmbiguousWord],
    scores: LayerScores,
    keys: Sequence[LayerKey],
    num_layers: int,
    settings: Dict[str, Any],
) -> List[ReportTable]:
    """
    # Parameters

    words : `Sequence[AmbiguousWord]`
        What was measured.
    scores : `LayerScores`
        `ACCURACY` and `BALANCED` of each word, and in the mean of all.
    keys : `Sequence[LayerKey]`
        The rows.
    num_layers : `int`
        Of the biLM, characters included.
    settings : `Dict[str, Any]`
        Of both tables.

    # Returns

    The table `wsd`, and `wsd-words` with the spread for each word.
    """
    all_words = ReportTable(
        name="wsd",
        title="Word senses by layer",
        columns=[
            *("vectors", "layer"),
            *(f"{word.name} (%)" for word in words),
            *("mean (%)", "std", "balanced mean (%)", "balanced std", "paper, F1 (%)"),
        ],
        rows=[
            [
                *key,
                *(scores.cells(key, ACCURACY._replace(word=word.name))[0] for word in words),
                *scores.cells(key, ACCURACY),
                *scores.cells(key, BALANCED),
                _paper(key, num_layers),
            ]
            for key in keys
        ],
        notes=_notes(words),
        settings=settings,
    )
    each_word = ReportTable(
        name="wsd-words",
        title="Word senses by layer, each word",
        columns=[
            *("word", "occurrences", "senses", "vectors", "layer"),
            *("accuracy (%)", "std", "balanced (%)", "balanced std"),
        ],
        rows=[
            [
                *(word.name, len(word.instances), len(word.distinct_senses), *key),
                *scores.cells(key, ACCURACY._replace(word=word.name)),
                *scores.cells(key, BALANCED._replace(word=word.name)),
            ]
            for word in words
            for key in keys
        ],
        notes=["As in the table of all words. std: of the sample, over seeds and test parts."],
        settings=settings,
    )
    return [all_words, each_word]


def _paper(key: LayerKey, num_layers: int) -> Any:
    if key.bilm == RANDOM_WEIGHTS or num_layers != _PAPER_NUM_LAYERS:
        return None
    return _PAPER.get(key.layer)


def _notes(words: Sequence[AmbiguousWord]) -> List[str]:
    notes = [
        "Accuracy: the share of occurrences that get their sense, that of the nearest mean vector in the "
        "training part; its mean is over words. Balanced: the mean over the senses of a word, so that "
        "rare ones count as much. Means of vectors do not say which sense is frequent, from which alone "
        "the baseline has its accuracy: compare the balanced ones too.",
        "Layer 0 does not see the context: it tells senses by the forms of a word, such as line and "
        "lines. Random weights are drawn anew for each seed. std: of the sample, over seeds and test "
        "parts.",
        "Paper: Peters et al. 2018, table 5, on other data: all words of four test sets, with the senses "
        "of SemCor as training examples; WordNet's first sense, layer 1 and layer 2. (CoVe's two layers: "
        "59.4 and 64.7.)",
    ]
    left_out = [
        f"{word.name}: {', '.join(f'{sense} ({count})' for sense, count in word.left_out.items())}"
        for word in words
        if word.left_out
    ]
    if left_out:
        notes.append(
            f"Rare senses that are left out, with their occurrences: {'; '.join(left_out)}."
        )
    return notes
