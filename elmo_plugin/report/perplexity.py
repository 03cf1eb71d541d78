"""`elmo report perplexity`: perplexity before and after a biLM is adapted to a task's text (section 3.4)."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Sequence, Tuple

from elmo_plugin.arguments import option, option_group
from elmo_plugin.bilm.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.bilm.model_files import pretrained_names
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.callbacks import METRICS_BEFORE_NAME
from elmo_plugin.pretraining.starting_point import start_from_archive, start_from_files
from elmo_plugin.report.figures import draw_perplexities
from elmo_plugin.report.probes import DEFAULT_BILM, bilm_files, is_archive
from elmo_plugin.report.run_folder import METRICS_NAME, RunFolder
from elmo_plugin.report.runs import Run, RunOptions, train
from elmo_plugin.report.tables import FAILED, Part, Report, settings_of, write_report
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
            twice = [name for name, count in Counter(found).items() if count > 1]
            if twice or not found:
                raise ConfigurationError(
                    f"{flag}: found {', '.join(twice or found) or 'none'}, expected one or more, each of "
                    "another name."
                )


class Start(NamedTuple):
    """A biLM to start from: its name, its value of `LM_START`, and the vocabulary of its softmax."""

    name: str
    variable: str
    vocabulary_file: Path


def compare_perplexities(options: PerplexityOptions) -> Optional[Report]:
    """
    Adapt biLMs to texts, and write a table of their perplexities before and after, and a figure unless all
    runs failed. Returns nothing after a dry run. Texts, biLMs and the config are checked before anything is
    trained.
    """
    options.check()
    folder = options.runs.runs_folder
    texts = [(text, write_task_text(text, folder / "texts" / text.name)) for text in options.text]
    starts = [prepare_start(name, folder / "vocabularies") for name in options.bilm]
    pairs = [(start, text, files) for start, (text, files) in product(starts, texts)]
    experiments = [prepare_experiment(options, *pair) for pair in pairs]
    runs = {
        (text.name, start.name, seed): _run(experiment, seed)
        for (start, text, _), experiment in zip(pairs, experiments)
        for seed in options.runs.seeds
    }
    trained = train(runs, options.runs, experiments[0].metric)
    if trained is None:
        return None
    rows = [
        [*key[:2], *_perplexities(RunFolder(folder / runs[key].name)), scores.minutes]
        for key, scores in trained.scores.items()
        if scores is not None
    ]
    table = _table(pairs, rows)
    title = "Perplexity before and after adapting"
    finished = table[table["seeds"] > 0]
    part = Part(
        f"{title} the biLM to a task's text",
        table.reset_index(),
        [*_NOTES, *trained.notes()],
        draw_perplexities(title, finished) if len(finished) else None,
    )
    settings = settings_of(seeds=list(options.runs.seeds), versions=trained.versions)
    return write_report(options.runs.output, {"perplexity": part}, settings, trained.failures)


def prepare_start(name: str, folder: Path) -> Start:
    """Find a biLM, and write the vocabulary of its softmax, without which perplexity is not defined."""
    variable = name
    if is_archive(name):
        start = start_from_archive(name)
    elif name in pretrained_names():
        start = start_from_files(name, None)
    else:
        start = start_from_files(*bilm_files(name))
        # With a slash, by which configs distinguish a folder from a name.
        variable = f"./{name}" if "/" not in name else name.rstrip("/")
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
    return Start(name, variable, vocabulary_file)


def prepare_experiment(
    options: PerplexityOptions, start: Start, text: TaskText, files: TextFiles
) -> Experiment:
    """Evaluate the config for a biLM and a text. It must measure perplexity before training."""
    experiment = Experiment(
        options.config,
        options.runs.overrides,
        f"perplexity-{text.name}-{_slug(start.name)}",
        {
            "LM_START": start.variable,
            "LM_VOCABULARY": str(start.vocabulary_file),
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
    pairs: Sequence[Tuple[Start, TaskText, TextFiles]], rows: List[List[Any]]
) -> "pandas.DataFrame":
    """
    Return a row for each biLM and text, with the means of the runs that did not fail.

    # Parameters

    rows : `List[List[Any]]`
        For each of these runs the names of text and biLM, what `_perplexities` returns, and minutes.
    """
    import pandas

    directions = [
        f"{way} {when}" for way in ("forward", "backward") for when in ("before", "after")
    ]
    names = ["before", "after", *directions, "minutes"]
    runs = pandas.DataFrame(rows, columns=["text", "biLM", *names])
    groups = runs.astype(dict.fromkeys(names, float)).groupby(["text", "biLM"])
    index = pandas.MultiIndex.from_tuples(
        [(text.name, start.name) for start, text, _ in pairs], names=["text", "biLM"]
    )
    means = groups.mean().reindex(index)
    seeds = groups.size().reindex(index, fill_value=0)
    columns = {
        "training words": [files.num_train_words for *_, files in pairs],
        "held-out words": [files.num_held_out_words for *_, files in pairs],
        "seeds": seeds,
        **{name: means[name].round(1).astype(object) for name in ("before", "after")},
        "std": groups["after"].std().round(2).reindex(index),
        "after / before": (means["after"] / means["before"]).round(2),
        **means[directions].round(1),
        "minutes": means["minutes"].round(2),
    }
    table = pandas.DataFrame(columns, index)
    table.loc[seeds == 0, ["before", "after"]] = FAILED
    papers = [_PAPER.get(text.kind, (None, None, None)) for _, text, _ in pairs]
    if any(map(any, papers)):
        table[["paper's text", "paper before", "paper after"]] = papers
    return table


def _perplexities(folder: RunFolder) -> List[float]:
    """Return the perplexities of a finished run, before and after: of both directions, and of each."""
    names = ["perplexity", "forward_perplexity", "backward_perplexity"]
    best = [f"best_validation_{name}" for name in names]
    before = folder.metrics(METRICS_BEFORE_NAME, names)
    after = folder.metrics(METRICS_NAME, best)
    return [value for pair in zip(names, best) for value in (before[pair[0]], after[pair[1]])]


def _run(experiment: Experiment, seed: int) -> Run:
    has_seed = "seed" in experiment.config.get("data_loader", {})
    changes = {"data_loader.seed": seed} if has_seed else {}
    return experiment.run(experiment.name, changes, seed)


def _slug(name: str) -> str:
    """Return a name, or a path, as a part of file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.-") or "_"
