"""`elmo-report perplexity`: what a biLM gains when it is adapted to a task's text (section 3.4)."""

import json
import logging
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError

from elmo_plugin.arguments import command_arguments, option, option_group
from elmo_plugin.bilm.model_files import pretrained_names
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.pretraining.callbacks import METRICS_BEFORE_NAME
from elmo_plugin.pretraining.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.pretraining.starting_point import start_from_archive, start_from_files
from elmo_plugin.report.figures import DrawnPerplexities, draw_perplexities, write_figure
from elmo_plugin.report.named_bilm import DEFAULT_BILM, bilm_files, is_archive
from elmo_plugin.report.run_folder import METRICS_NAME, RunResult
from elmo_plugin.report.runs import (
    Report,
    RunOptions,
    failures_of,
    recorded_versions,
    run_all,
)
from elmo_plugin.report.tables import FAILED, table_of, write_table
from elmo_plugin.report.task_text import TextFiles, write_task_text
from elmo_plugin.report.variants import Experiment, evaluated_config

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

NAME = "perplexity"
CALLBACK = "elmo_validate_first"

# The paper's development perplexity of SNLI, as a summary by others gives it. What it says of other tasks was
# not to be had: those rows have no figures.
_PAPER = {"pairs": ("SNLI", 72.1, 16.8)}

logger = logging.getLogger(__name__)


class TaskText(NamedTuple):
    """A name for tables and runs; the kind of the data (`TEXT_KINDS`); data to adapt to; held-out data."""

    name: str
    kind: str
    train: str
    heldout: str


@dataclass(frozen=True, kw_only=True)
class PerplexityOptions:
    """
    How much does a biLM gain when it is adapted to a task's text? Trains it for an epoch on the text,
    labels set aside, and measures perplexity on held-out text before and after, exact, in both directions.

    KIND says which part of TRAIN and HELDOUT is text:
      lines            one tokenized sentence on each line
      trees            the Stanford Sentiment Treebank
      pairs            JSON lines with sentence1 and sentence2, as SNLI's
      conll2012        the words of CoNLL-2012 files, or of folders of *.gold_conll files
      conll2003        the words of files of four columns
      squad-contexts, squad-questions
                       the paragraphs, or the questions, of SQuAD 1.1

    examples:
      allennlp elmo-report perplexity --text sst trees data/sst/train.txt data/sst/dev.txt -s results
      allennlp elmo-report perplexity --bilm my_bilm runs/bilm/model.tar.gz -s results \\
          --text sst trees data/sst/train.txt data/sst/dev.txt \\
          --text snli pairs data/snli/train.jsonl data/snli/dev.jsonl

    Needs biLMs with the softmax that they were trained with: elmo_mini, archives of pretraining, and what
    `allennlp elmo-export` makes of those. Writes perplexity (.md, .csv, .json, .png, .svg).
    """

    text: Sequence[TaskText] = option(
        "a text: its name, its kind and two files; repeat it for more"
    )
    bilm: Sequence[str] = option(
        "elmo_mini; a folder with options.json, weights.hdf5 and vocab.txt; or an archive, model.tar.gz",
        (DEFAULT_BILM,),
        metavar="NAME",
    )
    config: str = option(
        "of `allennlp train`; LM_START, LM_VOCABULARY, LM_TRAIN and LM_HELDOUT are set for it",
        "training_configs/bilm_finetune.jsonnet",
        metavar="FILE",
    )
    runs: RunOptions = option_group("training runs")

    def check(self) -> None:
        """
        # Raises

        `ConfigurationError` for names that occur twice or cannot name files, and as `RunOptions.check`
        does.
        """
        self.runs.check()
        names = [text.name for text in self.text]
        for name in names:
            if _slug(name) != name:
                raise ConfigurationError(
                    f"--text: found the name '{name}', expected letters, digits, '-', '_' and '.', as "
                    "files are named after it."
                )
        for flag, found in (("--text", names), ("--bilm", [_slug(name) for name in self.bilm])):
            twice = [name for name, count in Counter(found).items() if count > 1]
            if twice or not found:
                raise ConfigurationError(
                    f"{flag}: found {', '.join(twice or found) or 'none'}, expected one or more, each of "
                    "another name."
                )


class Start(NamedTuple):
    """A biLM to start from: its name, its value for `LM_START`, and the words that its softmax predicts."""

    name: str
    variable: str
    vocabulary_file: Path


class Adaptation(NamedTuple):
    """A biLM to be adapted to a text."""

    text: TaskText
    bilm: str
    files: TextFiles
    experiment: Experiment


def compare_perplexities(options: PerplexityOptions) -> Optional[Report]:
    """
    Adapt biLMs to texts, and write a table and a picture of their perplexities before and after.

    # Returns

    The table and the files (no picture if all runs failed); `None` after a dry run.

    # Raises

    `ConfigurationError`, before anything is trained, for options that are not as described, for data that
    is not of its kind, for biLMs without a softmax, and for a config that cannot be evaluated; and, before
    the runs of a text, for a folder that holds a run of another config.
    """
    options.check()
    folder = options.runs.runs_folder
    files = [
        write_task_text(text.kind, text.train, text.heldout, folder / "texts" / text.name)
        for text in options.text
    ]
    starts = [prepare_start(name, folder / "vocabularies") for name in options.bilm]
    # All of them first, so that what is wrong with the last is known before the first is trained.
    adaptations = [
        Adaptation(text, start.name, of_text, prepare_experiment(options, text, start, of_text))
        for start in starts
        for text, of_text in zip(options.text, files)
    ]
    results: List[List[RunResult]] = []
    for adaptation in adaptations:
        logger.info("%s: adapting %s.", adaptation.text.name, adaptation.bilm)
        experiment = adaptation.experiment
        runs = [
            experiment.run(experiment.name, experiment.name, _loader_seed(experiment, seed), seed)
            for seed in options.runs.seeds
        ]
        results.append(run_all(runs, options.runs, experiment) or [])
    if options.runs.dry_run:
        return None
    all_results = [result for of_text in results for result in of_text]
    rows = [_row(*pair, folder) for pair in zip(adaptations, results)]
    settings = {
        "command": shlex.join(["allennlp", "elmo-report", NAME, *command_arguments(options)]),
        "seeds": list(options.runs.seeds),
        "versions": recorded_versions(all_results),
    }
    failures = failures_of(all_results)
    table = table_of(
        _frame(rows),
        NAME,
        "Perplexity before and after adapting the biLM to a task's text",
        _notes(failures),
        settings,
    )
    written = write_table(table, options.runs.output)
    drawn = [
        DrawnPerplexities(
            f"{adaptation.text.name}\n{adaptation.bilm}"
            if len(starts) > 1
            else adaptation.text.name,
            (row["before"], row["after"]),
            _PAPER[adaptation.text.kind][1:] if adaptation.text.kind in _PAPER else None,
        )
        for adaptation, row in zip(adaptations, rows)
        if row["after"] != FAILED
    ]
    if drawn:
        figure = draw_perplexities("Perplexity before and after adapting", drawn)
        written += write_figure(figure, options.runs.output, NAME)
    return Report([table], written, failures)


def prepare_start(name: str, folder: Path) -> Start:
    """
    Find a biLM, and write the words of its softmax.

    # Parameters

    name : `str`
        See `load_named_bilm`.
    folder : `Path`
        Where to write the words.

    # Raises

    `ConfigurationError` if there is no such biLM, or it has no softmax: perplexity is then not defined.
    """
    is_named = name in pretrained_names()
    if is_archive(name):
        start = start_from_archive(name)
    elif is_named:
        start = start_from_files(name, None)
    else:
        start = start_from_files(*bilm_files(name))
    if not start.datasets or start.words is None:
        missing = f"no {VOCABULARY_NAME} beside its weights" if start.datasets else "no softmax"
        raise ConfigurationError(
            f"--bilm {name}: found {missing}, expected the softmax that it was trained with, and its "
            "words: without them a biLM predicts nothing. Give the archive of its training, or what "
            "`allennlp elmo-export` made of that."
        )
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary_file = folder / f"{_slug(name)}-{VOCABULARY_NAME}"
    LMVocabulary(start.words, name).to_file(vocabulary_file)
    variable = name
    if not is_archive(name) and not is_named:
        # With a slash, by which configs tell a folder from a name.
        variable = f"./{name}" if "/" not in name else name.rstrip("/")
    return Start(name, variable, vocabulary_file)


def prepare_experiment(
    options: PerplexityOptions, text: TaskText, start: Start, files: TextFiles
) -> Experiment:
    """
    Evaluate the config for a biLM and a text, and write it as JSON: a run then needs no environment
    variables.

    # Raises

    `ConfigurationError` if the config cannot be evaluated, or does not measure perplexity before training.
    """
    variables = {
        "LM_START": start.variable,
        "LM_VOCABULARY": str(start.vocabulary_file),
        "LM_TRAIN": str(files.train),
        "LM_HELDOUT": str(files.held_out),
    }
    config = evaluated_config(options.config, options.runs.overrides or {}, variables)
    callbacks = [
        callback if isinstance(callback, str) else callback.get("type")
        for callback in config.get("trainer", {}).get("callbacks") or []
    ]
    if CALLBACK not in callbacks:
        raise ConfigurationError(
            f"{options.config}: trainer.callbacks is {callbacks}, expected {CALLBACK} among them, which "
            "measures the perplexity before training, as in training_configs/bilm_finetune.jsonnet."
        )
    name = f"{NAME}-{text.name}-{_slug(start.name)}"
    evaluated_file = options.runs.runs_folder / f"{name}.json"
    with replaced_file(evaluated_file) as new_file:
        new_file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Experiment(evaluated_file, name=name)


def perplexities_of(run_folder: Path) -> Dict[Tuple[str, str], float]:
    """
    Return the perplexities of a finished run: by direction (empty for the mean of both), `before` and
    `after`.

    # Raises

    `ConfigurationError` if its metrics are missing.
    """
    perplexities = {}
    for when, name, prefix in (
        ("before", METRICS_BEFORE_NAME, ""),
        ("after", METRICS_NAME, "best_validation_"),
    ):
        try:
            metrics = json.loads((run_folder / name).read_text(encoding="utf-8"))
            for direction in ("", "forward", "backward"):
                key = "_".join(filter(None, [direction, "perplexity"]))
                perplexities[direction, when] = metrics[prefix + key]
        except (OSError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"{run_folder / name}: cannot be read as the perplexities of a run ({error!r}). Remove "
                f"{run_folder} to train it again."
            ) from error
    return perplexities


def _slug(name: str) -> str:
    """A name, or a path, as a part of file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.-") or "_"


def _loader_seed(experiment: Experiment, seed: int) -> Dict[str, Any]:
    has_seed = "seed" in experiment.config.get("data_loader", {})
    return {"data_loader.seed": seed} if has_seed else {}


def _row(adaptation: Adaptation, results: Sequence[RunResult], folder: Path) -> Dict[str, Any]:
    import pandas

    row: Dict[str, Any] = {
        "text": adaptation.text.name,
        "biLM": adaptation.bilm,
        "training words": adaptation.files.num_train_words,
        "held-out words": adaptation.files.num_held_out_words,
        "seeds": 0,
        "before": FAILED,
        "after": FAILED,
    }
    finished = [result for result in results if result.scores is not None]
    if finished:
        runs = pandas.DataFrame([perplexities_of(folder / result.run.name) for result in finished])
        means, after = runs.mean(), runs["", "after"]
        row["seeds"] = len(finished)
        row |= {when: round(means["", when], 1) for when in ("before", "after")}
        row |= {
            "std": round(after.std(), 2),
            "after / before": round(after.mean() / means["", "before"], 2),
        }
        for direction in ("forward", "backward"):
            for when in ("before", "after"):
                row[f"{direction} {when}"] = round(means[direction, when], 1)
        minutes = [result.scores.minutes for result in finished if result.scores is not None]
        row["minutes"] = round(sum(minutes) / len(minutes), 2)
    paper = _PAPER.get(adaptation.text.kind, (None, None, None))
    return {**row, **dict(zip(("paper's text", "paper before", "paper after"), paper))}


def _frame(rows: Sequence[Dict[str, Any]]) -> "pandas.DataFrame":
    import pandas

    frame = pandas.DataFrame(rows, dtype=object)
    paper = ["paper's text", "paper before", "paper after"]
    frame = frame[[*frame.columns.drop(paper), *paper]]
    return frame.drop(columns=paper) if frame[paper].isna().all(axis=None) else frame


def _notes(failures: Sequence[str]) -> List[str]:
    notes = [
        "Perplexity on held-out text of the task, exact, over the whole vocabulary, in the mean of both "
        "directions; after: at the end of the best epoch, in the mean of the seeds. std: of the sample, "
        "over seeds. Each sentence counts once. Minutes: of training and validation.",
        "Paper: Peters et al. 2018 on the development data of the whole task, with a larger biLM and "
        "another vocabulary: compare the gain, not the perplexities. Its figures for SNLI were seen in a "
        "summary by others, not in the paper.",
    ]
    return [*notes, *(["Means are of the runs that did not fail."] if failures else []), *failures]
