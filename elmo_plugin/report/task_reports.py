"""
Reports that train variants of a task with several seeds: `elmo report layers` and `placement` (the paper's
tables 2 and 3), `vectors`, and `sample-efficiency` (figure 1).
"""

import copy
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pandas
from allennlp.common import Params
from allennlp.data import DatasetReader

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.figures import draw_shares, draw_variants
from elmo_plugin.report.share_reader import check_share, share_size
from elmo_plugin.report.tables import FAILED, Part, Report, check_option
from elmo_plugin.report.task_scores import Pair, TaskScores, train_variants
from elmo_plugin.report.variants import (
    ELMO_KEY,
    NO_WORD_VECTORS,
    TaskExperiment,
    TaskOptions,
    Variant,
    width_of_vectors,
)

NO_ELMO, ELMO = "no ELMo", "ELMo"
PLACEMENTS = {"none": NO_ELMO, "input": "input", "both": "input and output", "output": "output"}

LAYER_VARIANTS = (
    Variant(NO_ELMO, placement="none"),
    Variant("last layer only", last_layer_only=True),
    Variant("all layers, λ = 1", last_layer_only=False, scalar_mix_l2=1.0),
    Variant("all layers, λ = 0.001", last_layer_only=False, scalar_mix_l2=0.001),
)

# The paper's scores on development data, of tables 2 and 3 (without ELMo of table 2 in both): F1, and for
# SNLI accuracy.
_PAPER_TASKS = ("squad", "snli", "srl")
_PAPER = {
    "layers": {
        NO_ELMO: (80.8, 88.1, 81.6),
        "last layer only": (84.7, 89.1, 84.1),
        "all layers, λ = 1": (85.0, 89.3, 84.6),
        "all layers, λ = 0.001": (85.2, 89.5, 84.8),
    },
    "placement": {
        NO_ELMO: (80.8, 88.1, 81.6),
        "input": (85.1, 88.9, 84.7),
        "input and output": (85.6, 89.5, 84.3),
        "output": (84.8, 88.7, 80.9),
    },
}

_LAYERS_NOTE = (
    "ELMo is placed as in the config. Last layer only: one vector of the biLM, with a learned scale. "
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
    "starts from random numbers and is trained. The vocabulary has all words where they have pretrained "
    "vectors; elsewhere rare words share a vector with those that only other data have (if the config makes "
    "it of counted words). Wide word vectors: a control, as wide as word vectors and ELMo together. "
    "Everything else is as in the config."
)

_SHARE_NOTE = (
    "A share is a part of the instances that the config's reader reads from the training data. The seed "
    "of the run chooses it; smaller shares are parts of larger ones. Validation and test data are as in the "
    "config. The vocabulary is made as in the config (by default from the share, the validation and test "
    "data). With --word-vectors, every word has a vector of its own. An epoch of a share has as many batches "
    "as one of all data, so that small shares have as many updates."
)
_CURVE_NOTE = (
    "Epochs are counted from 1. Passes: the first epoch in which ELMo scores higher than the best without "
    "it; empty if there is none."
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
    word vectors, with each of some biLMs, and with word vectors and each biLM. Without --word-vectors, the
    config is trained without ELMo and with each biLM.

    With ELMo the input of the task's RNN is wider, and its first layer has more weights. --wide-vectors adds
    a control: word vectors of this width, made from the same text (scripts/word_vectors.py --dim N). Output
    ELMo has no control.

    Comparisons that this report plans have a p-value, corrected for their number by Holm: word vectors and
    each biLM alone against no vectors, and both together against word vectors alone, of either width.

    examples:
      export NER_DATA=data/ner ELMO=elmo_mini
      elmo report vectors training_configs/ner_small.jsonnet --word-vectors glove.6B.100d.txt -s results
      elmo report vectors training_configs/ner_small.jsonnet --bilms elmo_mini runs/domain/export -s results

    Writes vectors-NAME (.md, .csv, .json, .png, .svg), and vectors-differences-NAME with the differences of
    each pair of variants.
    """

    word_vectors: Optional[str] = option(
        "word vectors in GloVe's text format, for variants without ELMo and with each biLM",
        None,
        metavar="FILE",
    )
    wide_vectors: Sequence[str] = option(
        "word vectors as wide as those of --word-vectors and one of the biLMs together, each for a variant "
        "without ELMo",
        (),
        metavar="FILE",
    )
    bilms: Sequence[str] = option(
        "names or folders of biLMs, each for a variant with ELMo where the config places it (default: the "
        "config's)",
        (),
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class SampleEfficiencyOptions(TaskOptions):
    """
    How much less data does a task need with ELMo? Trains a config with and without it on shares of the
    training data, and shows scores by share and by epoch: the paper's figure 1.

    A share is a part of the instances that the config's reader reads from the training file: sentences of NER
    and SST (and phrases, where they are read), pairs of SNLI, questions of SQuAD, predicates of SRL,
    documents of coreference. An epoch has the same number of batches for each share as for all of the data.
    One pass over a small share would be few updates: it would compare shorter training rather than less data.

    examples:
      export SRL_DATA=data/srl ELMO=elmo_mini
      elmo report sample-efficiency training_configs/srl_small.jsonnet -s results
      elmo report sample-efficiency training_configs/srl_small.jsonnet -s results --shares 0.1 1

    Writes sample-efficiency-NAME (.md, .csv, .json, .png, .svg), sample-efficiency-epochs-NAME with the
    best epoch of each run, and sample-efficiency-differences-NAME.
    """

    shares: Sequence[float] = option(
        "shares of the training data, each larger than 0 and at most 1",
        (0.01, 0.1, 1.0),
        metavar="F",
    )


def compare_layers(options: LayersOptions) -> Optional[Report]:
    """Train a config without ELMo, with the last layer and with all; return nothing after a dry run."""
    experiment = TaskExperiment.with_elmo(options)
    if experiment.elmo.get("scalar_mix_parameters") is not None:
        raise ConfigurationError(
            f"{experiment.config_file}: {ELMO_KEY}.scalar_mix_parameters fixes the weights of the layers, "
            "expected a config in which they are learned. Leave it out."
        )
    variants = [variant._replace(word_vectors=options.word_vectors) for variant in LAYER_VARIANTS]
    return _compare("layers", "Which layers", _LAYERS_NOTE, experiment, variants)


def compare_placements(options: PlacementOptions) -> Optional[Report]:
    """Train a config with ELMo at several places; return nothing after a dry run."""
    variants = [
        Variant(label, placement=place, word_vectors=options.word_vectors)
        for place, label in PLACEMENTS.items()
        if place in options.placements
    ]
    experiment = TaskExperiment(options)
    return _compare("placement", "Where ELMo goes", _PLACEMENT_NOTE, experiment, variants)


def compare_vectors(options: VectorsOptions) -> Optional[Report]:
    """Train a config with other vectors of words; return nothing after a dry run."""
    experiment = TaskExperiment.with_elmo(options)
    words = options.word_vectors
    bilms: Sequence[Optional[str]] = options.bilms or [experiment.bilm]
    none = Variant("no vectors", placement="none", word_vectors=NO_WORD_VECTORS)
    of_words = (
        [Variant(f"word vectors {_name(words)}", "none", word_vectors=words)] if words else []
    )
    controls = [
        Variant(f"wide word vectors {_name(file)}", "none", word_vectors=file)
        for file in options.wide_vectors
    ]
    of_bilms = [
        Variant(f"ELMo {_name(bilm)}" if bilm else "ELMo", bilm=bilm, word_vectors=NO_WORD_VECTORS)
        for bilm in bilms
    ]
    of_both = [
        Variant(f"{static.label} and {elmo.label}", bilm=elmo.bilm, word_vectors=words)
        for static, elmo in product(of_words, of_bilms)
    ]
    variants = [none, *of_words, *controls, *of_bilms, *of_both]
    labels = [variant.label for variant in variants]
    expected = "files and folders with different names, which are the names of variants"
    are_different = len(set(labels)) == len(labels)
    flags = "--word-vectors, --wide-vectors and --bilms"
    check_option(flags, ", ".join(labels[1:]), are_different, expected)
    for bilm in options.bilms:
        resolve_model_files(bilm, None)  # before anything is trained
    if options.wide_vectors:
        _check_wide_vectors(options, experiment)
    pairs = [*product([*of_words, *of_bilms], [none]), *product(of_both, [*of_words, *controls])]
    planned = [(variant.label, compared.label) for variant, compared in pairs]
    return _compare("vectors", "Vectors of words", _VECTORS_NOTE, experiment, variants, planned)


def _name(path: str) -> str:
    return Path(path).name


def _check_wide_vectors(options: VectorsOptions, experiment: TaskExperiment) -> None:
    """Raise an error unless each file is as wide as the word vectors and one of the biLMs together."""
    found = f"nothing beside --wide-vectors {' '.join(options.wide_vectors)}"
    check_option("--word-vectors", found, options.word_vectors is not None, "a file")
    word_dim = width_of_vectors(str(options.word_vectors))
    elmo = experiment.elmo
    of_config = (elmo.get("options_file"), elmo.get("weight_file"))
    files_of_bilms = [(bilm, None) for bilm in options.bilms] if options.bilms else [of_config]
    widths = [word_dim + BiLM.from_files(*files).get_output_dim() for files in files_of_bilms]
    for file in options.wide_vectors:
        width = width_of_vectors(file)
        expected = f"{' or '.join(map(str, widths))}, of --word-vectors and a biLM together"
        check_option("--wide-vectors", f"vectors of width {width}", width in widths, expected)


def compare_shares(options: SampleEfficiencyOptions) -> Optional[Report]:
    """
    Train a config with and without ELMo on shares of its training data, and write the scores by share and the
    best epochs. Returns nothing after a dry run.
    """
    for share in options.shares:
        check_share(share, "--shares")
    shares = sorted(set(options.shares))
    experiment = TaskExperiment.with_elmo(options)
    num_instances = _count_training_instances(experiment)
    num_batches = _batches_of_an_epoch(experiment, num_instances)
    variants = {
        (share, label): Variant(
            label,
            placement,
            share=share,
            batches_per_epoch=num_batches,
            word_vectors=options.word_vectors,
        )
        for share in shares
        for label, placement in ((NO_ELMO, "none"), (ELMO, None))
    }
    scores = train_variants(experiment, variants)
    if scores is None:
        return None
    table = scores.table().rename_axis(["share", "variant"]).reset_index()
    table.insert(1, "instances", [share_size(num_instances, share) for share in table["share"]])
    differences = pandas.concat(
        {share: scores.differences(share) for share in shares}, names=["share"]
    ).reset_index("share")
    figure = draw_shares(f"How much data: {experiment.name}", scores.metric, scores.by_seed())
    epochs = _best_epochs(scores, shares)
    parts = {
        "": Part("How much data", table, [_SHARE_NOTE, *scores.notes()], figure),
        "epochs": Part("How many epochs", epochs, [_CURVE_NOTE, _SHARE_NOTE]),
        "differences": Part("With and without ELMo", differences, scores.difference_notes()),
    }
    return scores.write("sample-efficiency", parts)


def _compare(
    name: str,
    title: str,
    note: str,
    experiment: TaskExperiment,
    variants: Sequence[Variant],
    planned: Sequence[Pair] = (),
) -> Optional[Report]:
    """Train variants and write the report. `planned` are the pairs whose difference gets a p-value."""
    scores = train_variants(experiment, {(variant.label,): variant for variant in variants})
    if scores is None:
        return None
    table = scores.table().rename_axis("variant").reset_index()
    if name in _PAPER and experiment.task in _PAPER_TASKS:
        metric = "accuracy" if experiment.task == "snli" else "F1"
        number = _PAPER_TASKS.index(experiment.task)
        paper = {label: figures[number] for label, figures in _PAPER[name].items()}
        table[f"paper, dev {metric} (%)"] = table["variant"].map(paper)
    figure = draw_variants(f"{title}: {experiment.name}", scores.metric, scores.by_seed())
    parts = {"": Part(title, table, [note, *scores.notes()], figure)}
    if len(variants) > 1:
        table, notes = scores.differences(planned=planned), scores.difference_notes(planned)
        parts["differences"] = Part(f"{title}, differences", table, notes)
    return scores.write(name, parts)


def _count_training_instances(experiment: TaskExperiment) -> int:
    path = experiment.config["train_data_path"]
    reader = DatasetReader.from_params(Params(copy.deepcopy(experiment.config["dataset_reader"])))
    num_instances = sum(1 for _ in reader.read(path))
    if num_instances == 0:
        raise ConfigurationError(
            f"train_data_path: found no instance in {path}, expected data to take shares of."
        )
    return num_instances


def _batches_of_an_epoch(experiment: TaskExperiment, num_instances: int) -> int:
    """Return how many batches of all data an epoch has, in each of the distributed workers."""
    loader = experiment.config.get("data_loader", {})
    workers = (experiment.config.get("distributed") or {}).get("cuda_devices", [None])
    size = (loader.get("batch_sampler") or loader).get("batch_size")
    if not isinstance(size, int):
        raise ConfigurationError(
            f"{experiment.config_file}: neither data_loader.batch_size nor "
            "data_loader.batch_sampler.batch_size is a number. It is needed to count the batches of all "
            "data. Give one."
        )
    return loader.get("batches_per_epoch") or math.ceil(num_instances / (size * len(workers)))


def _best_epochs(scores: TaskScores, shares: Sequence[float]) -> pandas.DataFrame:
    """Return the best epochs of each share and seed, and when the scores with ELMo pass the best without."""
    best, epochs = scores.by_seed(), scores.by_seed("best_epoch")
    runs = scores.trained.scores
    sign = 1 if scores.experiment.is_larger_better else -1
    rows = []
    for share, seed in product(shares, best.columns):
        row: Dict[str, Any] = {"share": share, "seed": seed}
        for label in (NO_ELMO, ELMO):
            score, epoch = (frame.loc[(share, label), seed] for frame in (best, epochs))
            has_failed = math.isnan(score)
            row[f"{label}, best dev {scores.metric}"] = FAILED if has_failed else round(score, 2)
            row[f"{label}, in epoch"] = None if has_failed else int(epoch)
        baseline = runs.loc[(share, NO_ELMO, seed), "validation"]
        curve = enumerate(runs.loc[(share, ELMO, seed), "curve"] or (), start=1)
        better = (epoch for epoch, score in curve if sign * score > sign * baseline)
        row["passes in epoch"] = next(better, None)
        rows.append(row)
    return pandas.DataFrame(rows, dtype=object)
