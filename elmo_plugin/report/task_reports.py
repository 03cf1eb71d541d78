"""
Reports that train variants of a task with several seeds: `elmo report layers` and `placement` (the paper's
tables 2 and 3), and `vectors`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from elmo_plugin.arguments import option
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.figures import draw_variants
from elmo_plugin.report.runs import TrainedRuns, train
from elmo_plugin.report.tables import (
    FAILED,
    Part,
    Report,
    check_option,
    paired_differences,
    settings_of,
    write_report,
)
from elmo_plugin.report.variants import ELMO_KEY, TaskExperiment, TaskOptions, Variant

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

NO_ELMO = "no ELMo"
PLACEMENTS = {"none": NO_ELMO, "input": "input", "both": "input and output", "output": "output"}

LAYER_VARIANTS = (
    Variant(NO_ELMO, placement="none"),
    Variant("last layer only", last_layer_only=True),
    Variant("all layers, λ = 1", last_layer_only=False, scalar_mix_l2=1.0),
    Variant("all layers, λ = 0.001", last_layer_only=False, scalar_mix_l2=0.001),
)

# F1, of SNLI accuracy, on development data: tables 2 and 3, and table 2 for no ELMo in both.
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

DIFFERENCE_NOTE = (
    "Difference: the mean, over the seeds that both variants have, of the variant's score minus the score "
    "of the variant that it is compared with. The 95 % interval is Student's: if it contains 0, these "
    "seeds do not show which variant is better. It covers the randomness of training, not the choice of "
    "the data."
)

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
    """Train a config without ELMo, with the last layer and with all; return nothing after a dry run."""
    experiment = TaskExperiment.with_elmo(options)
    if experiment.elmo.get("scalar_mix_parameters") is not None:
        raise ConfigurationError(
            f"{experiment.config_file}: {ELMO_KEY}.scalar_mix_parameters fixes the weights of the layers, "
            "expected a config in which they are learnt. Leave it out."
        )
    return _compare("layers", "Which layers", _LAYERS_NOTE, experiment, LAYER_VARIANTS)


def compare_placements(options: PlacementOptions) -> Optional[Report]:
    """Train a config with ELMo at several places; return nothing after a dry run."""
    variants = [
        Variant(label, placement=place)
        for place, label in PLACEMENTS.items()
        if place in options.placements
    ]
    experiment = TaskExperiment(options)
    return _compare("placement", "Where ELMo goes", _PLACEMENT_NOTE, experiment, variants)


def compare_vectors(options: VectorsOptions) -> Optional[Report]:
    """Train a config with other vectors of words; return nothing after a dry run."""
    experiment = TaskExperiment.with_elmo(options)
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
    return _compare("vectors", "Vectors of words", _VECTORS_NOTE, experiment, variants)


def _compare(
    name: str, title: str, note: str, experiment: TaskExperiment, variants: Sequence[Variant]
) -> Optional[Report]:
    scores = train_variants(experiment, {variant.label: variant for variant in variants})
    if scores is None:
        return None
    table = scores.table().rename_axis("ELMo").reset_index()
    if name in _PAPER and experiment.task in _PAPER_TASKS:
        metric = "accuracy" if experiment.task == "snli" else "F1"
        number = _PAPER_TASKS.index(experiment.task)
        paper = {label: figures[number] for label, figures in _PAPER[name].items()}
        table[f"paper, dev {metric} (%)"] = table["ELMo"].map(paper)
    figure = draw_variants(f"{title}: {experiment.name}", scores.metric, scores.by_seed())
    parts = {"": Part(title, table, [note, *scores.notes()], figure)}
    if len(variants) > 1:
        parts["differences"] = Part(
            f"{title}, differences", scores.differences(), [DIFFERENCE_NOTE]
        )
    return scores.write(name, parts)


def train_variants(
    experiment: TaskExperiment, variants: Mapping[Any, Variant]
) -> Optional["TaskScores"]:
    """
    Train each variant with each seed. Returns nothing after a dry run. The keys of `variants` are those of
    the rows of tables: a label, or a share of the data with a label.
    """
    runs = {
        (key, seed): experiment.run_of(variant, seed)
        for key, variant in variants.items()
        for seed in experiment.options.seeds
    }
    trained = train(runs, experiment.options, experiment.metric)
    return None if trained is None else TaskScores(experiment, trained)


class TaskScores:
    """The scores of trained runs, by variant and seed: in percent if they are shares."""

    def __init__(self, experiment: TaskExperiment, trained: TrainedRuns) -> None:
        self.experiment, self.trained = experiment, trained
        scores = [each for each in trained.scores.values() if each is not None]
        values = [value for each in scores for value in (each.validation, each.test or 0.0)]
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        is_share = experiment.is_larger_better and all(0.0 <= value <= 1.0 for value in values)
        self._scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric
        self._parts = {"dev": "validation"}  # of the data, with their fields in `RunScores`
        if experiment.config.get("evaluate_on_test"):
            self._parts["test"] = "test"

    def by_seed(self, field: str = "validation") -> "pandas.DataFrame":
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        import pandas

        scores = self.trained.scores
        index = pandas.Index(dict.fromkeys(variant for variant, _ in scores))
        seeds = self.experiment.options.seeds
        values = [[getattr(scores[key, seed], field, None) for seed in seeds] for key in index]
        frame = pandas.DataFrame(values, index, seeds, dtype=float)
        return frame * self._scale if field in ("validation", "test") else frame

    def curve(self, variant: Any, seed: int) -> List[float]:
        """Return the scores of a run by epoch; nothing if it failed."""
        scores = self.trained.scores[variant, seed]
        return [] if scores is None else [score * self._scale for score in scores.curve]

    def table(self) -> "pandas.DataFrame":
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        import pandas

        has_failed = self.by_seed().isna()
        columns = {"seeds": (~has_failed).sum(axis=1)}
        cells = {}
        for part, field in self._parts.items():
            scores = self.by_seed(field)
            columns[f"{part} mean"] = scores.mean(axis=1).round(2)
            columns[f"{part} std"] = scores.std(axis=1).round(2)
            shown = scores.round(2).astype(object).mask(has_failed, FAILED)
            cells.update({f"{part} {self.metric}, seed {seed}": shown[seed] for seed in shown})
        columns.update(cells)  # after the means, which a narrow screen shows first
        columns["epochs"] = self.by_seed("epochs").mean(axis=1).round(1)
        columns["minutes"] = self.by_seed("minutes").mean(axis=1).round(2)
        columns["peak GB"] = self.by_seed("peak_gigabytes").max(axis=1).round(2)
        return pandas.DataFrame(columns)

    def differences(self, share: Optional[float] = None) -> "pandas.DataFrame":
        """Compare each pair of variants, or those of a share, see `paired_differences`."""
        import pandas

        tables = []
        for part, field in self._parts.items():
            scores = self.by_seed(field)
            tables.append(paired_differences(scores if share is None else scores.loc[share], part))
        return pandas.concat([tables[0], *(table.iloc[:, 3:] for table in tables[1:])], axis=1)

    def notes(self) -> List[str]:
        """Return the notes of all tables of scores, with the reasons of failures."""
        test = (
            "test: that epoch on test data"
            if "test" in self._parts
            else "the config does not evaluate on test data"
        )
        note = (
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. "
            "epochs and minutes: means, of training and validation; peak GB: the largest."
        )
        return [note, *self.trained.notes()]

    def write(self, report: str, parts: Dict[str, Part]) -> Report:
        """Write the parts of a report, each as REPORT-PART-EXPERIMENT; the first part has no name."""
        experiment = self.experiment
        paths = ("train_data_path", "validation_data_path", "test_data_path")
        settings = settings_of(
            experiment.variables(),
            seeds=list(experiment.options.seeds),
            **{key: experiment.config[key] for key in paths if key in experiment.config},
            versions=self.trained.versions,
        )
        named = {
            "-".join(filter(None, [report, name, experiment.name])): part._replace(
                title=f"{part.title}: {experiment.name}"
            )
            for name, part in parts.items()
        }
        return write_report(experiment.options.output, named, settings, self.trained.failures)
