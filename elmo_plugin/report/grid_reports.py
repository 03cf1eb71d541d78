"""
`elmo report layers`, `placement` and `vectors`: which layers a task needs, where (the paper's tables 2 and
3), and what they add beside word vectors.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

from elmo_plugin.arguments import option
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.figures import draw_variants
from elmo_plugin.report.tables import Part, Report, check_option
from elmo_plugin.report.task_scores import NO_ELMO, differences_part, train_variants
from elmo_plugin.report.variants import ELMO_KEY, TaskExperiment, TaskOptions, Variant

PLACEMENTS = {"none": NO_ELMO, "input": "input", "both": "input and output", "output": "output"}

LAYER_VARIANTS = (
    Variant(NO_ELMO, placement="none"),
    Variant("last layer only", last_layer_only=True),
    Variant("all layers, λ = 1", last_layer_only=False, scalar_mix_l2=1.0),
    Variant("all layers, λ = 0.001", last_layer_only=False, scalar_mix_l2=0.001),
)

# F1, of SNLI accuracy, on development data. By report and task, in the order of `LAYER_VARIANTS` (table 2)
# and of `PLACEMENTS` (table 3, and table 2 for none).
_PAPER = {
    ("layers", "squad"): (80.8, 84.7, 85.0, 85.2),
    ("layers", "snli"): (88.1, 89.1, 89.3, 89.5),
    ("layers", "srl"): (81.6, 84.1, 84.6, 84.8),
    ("placement", "squad"): (80.8, 85.1, 85.6, 84.8),
    ("placement", "snli"): (88.1, 88.9, 89.5, 88.7),
    ("placement", "srl"): (81.6, 84.7, 84.3, 80.9),
}

_LAYERS_NOTE = (
    "ELMo is placed as in the config. Last layer only: one vector of the biLM, with a learnt scale. "
    "All layers: their weighted mean; λ is the L2 regularization of the weights before the "
    "softmax: 1 keeps them near the plain mean, 0.001 leaves them free (paper, section 5.1 and table 2)."
)

_PLACEMENT_NOTE = (
    "Input: ELMo is added to the input of the task's RNN; output: to its output; each place has a "
    "separate mix over one pass of the biLM (paper, section 5.2 and table 3). Everything else is as in the "
    "config."
)

_VECTORS_NOTE = (
    "Word vectors: the config's embedding of words starts from that file and has its width; without it, it "
    "starts from random numbers. Everything else is as in the config."
)


@dataclass(frozen=True, kw_only=True)
class LayersOptions(TaskOptions):
    """
    Which layers does a task need? Trains a config without ELMo, with the last layer of the biLM only, and
    with a mix of all layers whose weights are regularized strongly (lambda = 1) or weakly (lambda = 0.001):
    the paper's table 2.

    examples:
      export NER_DATA=data/ner ELMO=elmo_mini
      elmo report layers training_configs/ner_small.jsonnet -s results
      elmo report layers training_configs/ner_small.jsonnet -s results --dry-run > commands.sh

    Writes layers-NAME (.md, .csv, .json, .png, .svg), and layers-differences-NAME with the differences of
    each pair of variants.
    """


@dataclass(frozen=True, kw_only=True)
class PlacementOptions(TaskOptions):
    """
    Where does a task's model need ELMo? Trains a config without it, and with it at the input of the task's
    RNN, at the output, and at both: the paper's table 3.

    examples:
      export SST_DATA=data/sst ELMO=elmo_mini
      elmo report placement training_configs/sst_small.jsonnet -s results
      elmo report placement training_configs/sst_small.jsonnet -s results --placements none both

    Writes placement-NAME (.md, .csv, .json, .png, .svg), and placement-differences-NAME with the
    differences of each pair of variants.
    """

    placements: Sequence[str] = option(
        "variants to train",
        tuple(PLACEMENTS),
        choices=tuple(PLACEMENTS),
        metavar="PLACE",
    )


@dataclass(frozen=True, kw_only=True)
class VectorsOptions(TaskOptions):
    """
    What does ELMo add to a task's model, beside pretrained word vectors? Trains a config without either, with
    word vectors, and with each of some biLMs.

    examples:
      export NER_DATA=data/ner ELMO=elmo_mini
      elmo report vectors training_configs/ner_small.jsonnet --word-vectors glove.6B.100d.txt -s results
      elmo report vectors training_configs/ner_small.jsonnet --bilms elmo_mini runs/domain/export -s results

    Writes vectors-NAME (.md, .csv, .json, .png, .svg), and vectors-differences-NAME with the differences of
    each pair of variants.
    """

    word_vectors: Sequence[str] = option(
        "files in GloVe's text format, each for a variant without ELMo", (), metavar="FILE"
    )
    bilms: Sequence[str] = option(
        "names or folders of biLMs, each for a variant with ELMo where the config places it (default: the "
        "config's)",
        (),
        metavar="NAME",
    )


def compare_layers(options: LayersOptions) -> Optional[Report]:
    """
    Train a config without ELMo, with the last layer only and with all layers, and write the scores. Returns
    nothing after a dry run.
    """
    experiment = options.experiment()
    experiment.check_has_elmo()
    if experiment.elmo.get("scalar_mix_parameters") is not None:
        raise ConfigurationError(
            f"{experiment.config_file}: {ELMO_KEY}.scalar_mix_parameters fixes the weights of the layers, "
            "expected a config in which they are learnt. Leave it out."
        )
    return _compare("layers", "Which layers", _LAYERS_NOTE, options, experiment, LAYER_VARIANTS)


def compare_placements(options: PlacementOptions) -> Optional[Report]:
    """Train a config with ELMo at several places, and write the scores, as `compare_layers`."""
    chosen = list(options.placements)
    are_places = len(set(chosen)) == len(chosen) and set(chosen) <= set(PLACEMENTS)
    expected = f"some of {', '.join(PLACEMENTS)}, each once"
    check_option("--placements", " ".join(chosen), are_places, expected)
    variants = [
        Variant(label, placement=place) for place, label in PLACEMENTS.items() if place in chosen
    ]
    experiment = options.experiment()
    return _compare("placement", "Where ELMo goes", _PLACEMENT_NOTE, options, experiment, variants)


def compare_vectors(options: VectorsOptions) -> Optional[Report]:
    """Train a config with other vectors of words, and write the scores, as `compare_layers`."""
    experiment = options.experiment()
    experiment.check_has_elmo()
    variants = [Variant("no vectors", placement="none")]
    for file in options.word_vectors:
        label = f"word vectors {Path(file).name}"
        variants.append(Variant(label, placement="none", word_vectors=file))
    for bilm in options.bilms or [experiment.bilm or ""]:
        variants.append(Variant(f"ELMo {Path(bilm).name}".strip(), bilm=bilm or None))
    labels = [variant.label for variant in variants]
    expected = "files and folders with different names, which are the names of variants"
    are_different = len(set(labels)) == len(labels)
    check_option("--word-vectors and --bilms", ", ".join(labels[1:]), are_different, expected)
    for bilm in options.bilms:
        resolve_model_files(bilm, None)  # before anything is trained
    return _compare("vectors", "Vectors of words", _VECTORS_NOTE, options, experiment, variants)


def _compare(
    report: str,
    title: str,
    note: str,
    options: TaskOptions,
    experiment: TaskExperiment,
    variants: Sequence[Variant],
) -> Optional[Report]:
    scores = train_variants(options, experiment, {variant.label: variant for variant in variants})
    if scores is None:
        return None
    table = scores.table().rename_axis("ELMo").reset_index()
    paper = _PAPER.get((report, experiment.task))
    if paper is not None:
        metric = "accuracy" if experiment.task == "snli" else "F1"
        labels = (
            [*PLACEMENTS.values()] if report == "placement" else [v.label for v in LAYER_VARIANTS]
        )
        table[f"paper, dev {metric} (%)"] = table["ELMo"].map(dict(zip(labels, paper)))
    figure = draw_variants(f"{title}: {experiment.name}", scores.metric, scores.by_seed())
    parts = {"": Part(title, table, [note, *scores.notes()], figure)}
    if len(variants) > 1:
        parts["differences"] = differences_part(f"{title}, differences", scores.differences())
    return scores.write(report, parts)
