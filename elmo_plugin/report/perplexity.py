"""`elmo report perplexity`: perplexity before and after a biLM is adapted to a task's text (section 3.4)."""

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from elmo_plugin.arguments import option, option_group
from elmo_plugin.bilm.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.callbacks import METRICS_BEFORE_NAME
from elmo_plugin.pretraining.starting_point import start_from_archive, start_from_files
from elmo_plugin.report.figures import draw_perplexities
from elmo_plugin.report.probes import DEFAULT_BILM, is_archive
from elmo_plugin.report.runs import METRICS_NAME, RunOptions, read_metrics, train
from elmo_plugin.report.tables import (
    FAILED,
    Part,
    Report,
    check_option,
    settings_of,
    write_report,
)
from elmo_plugin.report.task_text import TaskText, TextFiles, write_task_text
from elmo_plugin.report.variants import Experiment, check_name

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

CALLBACK = "elmo_validate_first"

# The paper's development perplexity of SNLI, from a summary by others. Its figures for other tasks were not
# available, so those rows have none.
_PAPER = {"pairs": ("SNLI", 72.1, 16.8)}
_NOTES = [
    "Perplexity on held-out text of the task: exact, over the whole vocabulary, the mean of both directions. "
    "After: at the end of the best epoch, the mean over seeds. std: of the sample, over seeds. Each sentence "
    "counts once. Minutes: of training and validation.",
    "Paper: Peters et al. 2018 on the development data of the whole task, with a larger biLM and another "
    "vocabulary: compare the gain, not the perplexities. Its figures for SNLI are from a summary by others, "
    "not from the paper itself.",
]


@dataclass(frozen=True, kw_only=True)
class PerplexityOptions:
    """
    How much does a biLM gain when it is adapted to a task's text? Trains it for an epoch on the text
    without its labels, and measures perplexity on held-out text before and after, exact, in both directions.

    KIND says which part of TRAIN and HELDOUT is text:
      lines            one tokenized sentence on each line
      trees            the Stanford Sentiment Treebank
      pairs            JSON lines with sentence1 and sentence2, as SNLI's
      conll2012        the words of CoNLL-2012 files, or of folders of *.gold_conll files
      conll2003        the words of files of four columns
      squad-contexts, squad-questions
                       the paragraphs, or the questions, of SQuAD 1.1

    examples:
      elmo report perplexity --text sst trees data/sst/train.txt data/sst/dev.txt -s results
      elmo report perplexity --bilm my_bilm runs/bilm/model.tar.gz -s results \\
          --text sst trees data/sst/train.txt data/sst/dev.txt \\
          --text snli pairs data/snli/train.jsonl data/snli/dev.jsonl

    Needs biLMs with the softmax that they were trained with: elmo_mini, archives of pretraining, and files
    that `elmo export` wrote from those. Writes perplexity (.md, .csv, .json, .png, .svg).
    """

    text: Sequence[TaskText] = option(
        "a text: its name, its kind and two files; repeat the flag for more texts"
    )
    bilm: Sequence[str] = option(
        "elmo_mini; a folder with options.json, weights.hdf5 and vocab.txt; or an archive, model.tar.gz",
        (DEFAULT_BILM,),
        metavar="NAME",
    )
    config: str = option(
        "a config of `allennlp train`; LM_START, LM_VOCABULARY, LM_TRAIN and LM_HELDOUT are set for it",
        "training_configs/bilm_finetune.jsonnet",
        metavar="FILE",
    )
    runs: RunOptions = option_group("training runs")

    def check(self) -> None:
        """Raise an error for names that occur twice or cannot be part of file names."""
        self.runs.check()
        names = [text.name for text in self.text]
        for name in names:
            check_name("--text", name)
        for flag, found in (("--text", names), ("--bilm", [_slug(name) for name in self.bilm])):
            are_distinct = len(set(found)) == len(found) > 0
            check_option(
                flag, ", ".join(found) or "none", are_distinct, "one or more different names"
            )


def compare_perplexities(options: PerplexityOptions) -> Optional[Report]:
    """
    Adapt biLMs to texts, and write a table of their perplexities before and after, and a figure unless all
    runs failed. Returns nothing after a dry run. Texts, biLMs and the config are checked before anything is
    trained.
    """
    options.check()
    folder = options.runs.runs_folder
    texts = [(text, write_task_text(text, folder / "texts" / text.name)) for text in options.text]
    vocabularies = {name: write_vocabulary(name, folder / "vocabularies") for name in options.bilm}
    experiments = {
        (text.name, bilm): prepare_experiment(options, bilm, vocabularies[bilm], text.name, files)
        for bilm, (text, files) in product(options.bilm, texts)
    }
    runs = {
        (*key, seed): experiment.run(experiment.name, {}, seed)
        for key, experiment in experiments.items()
        for seed in options.runs.seeds
    }
    trained = train(runs, options.runs, "perplexity")
    if trained is None:
        return None
    rows = [
        {
            **dict(zip(("text", "biLM"), key)),
            **_perplexities(folder / runs[key].name),
            "minutes": scores.minutes,
        }
        for key, scores in trained.scores.items()
        if scores is not None
    ]
    table = _table(texts, options.bilm, rows)
    title = "Perplexity before and after adapting"
    part = Part(
        f"{title} the biLM to a task's text",
        table.reset_index(),
        [*_NOTES, *trained.notes()],
        draw_perplexities(title, table[table["seeds"] > 0]) if rows else None,
    )
    settings = settings_of(seeds=list(options.runs.seeds), versions=trained.versions)
    return write_report(options.runs.output, {"perplexity": part}, settings, trained.failures)


def write_vocabulary(name: str, folder: Path) -> Path:
    """Write the vocabulary of a biLM's softmax, without which perplexity is not defined."""
    start = start_from_archive(name) if is_archive(name) else start_from_files(name, None)
    if start.softmax is None or start.words is None:
        missing = f"no {VOCABULARY_NAME} beside its weights" if start.softmax else "no softmax"
        raise ConfigurationError(
            f"--bilm {name}: found {missing}, expected the softmax that it was trained with, and its "
            "words: without them a biLM predicts nothing. Give the archive of its training, or the files "
            "that `elmo export` wrote from it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary_file = folder / f"{_slug(name)}-{VOCABULARY_NAME}"
    LMVocabulary(start.words, name).to_file(vocabulary_file)
    return vocabulary_file


def prepare_experiment(
    options: PerplexityOptions, bilm: str, vocabulary_file: Path, text_name: str, files: TextFiles
) -> Experiment:
    """Evaluate the config for a biLM and a text. It must measure perplexity before training."""
    experiment = Experiment(
        options.config,
        options.runs.overrides,
        f"perplexity-{text_name}-{_slug(bilm)}",
        {
            "LM_START": bilm,
            "LM_VOCABULARY": str(vocabulary_file),
            "LM_TRAIN": str(files.train),
            "LM_HELDOUT": str(files.held_out),
        },
    )
    callbacks = [
        callback if isinstance(callback, str) else callback.get("type")
        for callback in experiment.config["trainer"].get("callbacks") or []
    ]
    if CALLBACK not in callbacks:
        raise ConfigurationError(
            f"{options.config}: trainer.callbacks is {callbacks}, expected {CALLBACK} among them, which "
            "measures the perplexity before training, as in training_configs/bilm_finetune.jsonnet."
        )
    return experiment


def _table(
    texts: Sequence[Tuple[TaskText, TextFiles]], bilms: Sequence[str], rows: List[Dict[str, Any]]
) -> "pandas.DataFrame":
    """Return a row for each biLM and text, with means of `rows`, one for each run that did not fail."""
    import pandas

    index = pandas.MultiIndex.from_tuples(
        [(text.name, bilm) for bilm in bilms for text, _ in texts], names=["text", "biLM"]
    )
    directions = [
        f"{way} {when}" for way in ("forward", "backward") for when in ("before", "after")
    ]
    columns = ["text", "biLM", "before", "after", *directions, "minutes"]
    groups = pandas.DataFrame(rows, columns=columns).groupby(["text", "biLM"])
    means = groups.mean().astype(float).reindex(index)
    table = pandas.DataFrame(
        {
            "training words": [files.num_train_words for _, files in texts] * len(bilms),
            "held-out words": [files.num_held_out_words for _, files in texts] * len(bilms),
            "seeds": groups.size().reindex(index, fill_value=0),
            **{
                name: means[name].round(1).astype(object).mask(means[name].isna(), FAILED)
                for name in ("before", "after")
            },
            "std": groups["after"].std().round(2).reindex(index),
            "after / before": (means["after"] / means["before"]).round(2),
            **means[directions].round(1),
            "minutes": means["minutes"].round(2),
        },
        index,
    )
    papers = [_PAPER.get(text.kind, (None, None, None)) for text, _ in texts] * len(bilms)
    if any(map(any, papers)):
        table[["paper's text", "paper before", "paper after"]] = papers
    return table


def _perplexities(folder: Path) -> Dict[str, float]:
    """Return the perplexities of a finished run, before and after: of both directions, and of each."""
    prefixes = {"": "", "forward ": "forward_", "backward ": "backward_"}
    names = [f"{prefix}perplexity" for prefix in prefixes.values()]
    before = read_metrics(folder / METRICS_BEFORE_NAME, names)
    after = read_metrics(folder / METRICS_NAME, [f"best_validation_{name}" for name in names])
    perplexities = {}
    for way, name in zip(prefixes, names):
        perplexities[f"{way}before"] = before[name]
        perplexities[f"{way}after"] = after[f"best_validation_{name}"]
    return perplexities


def _slug(name: str) -> str:
    """Return a name, or a path, as a part of file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.-") or "_"
