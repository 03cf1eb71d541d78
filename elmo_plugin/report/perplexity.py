"""`elmo-report perplexity`: what a biLM gains when it is adapted to a task's text (section 3.4)."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence

from allennlp.common.checks import ConfigurationError

from elmo_plugin.arguments import option, option_group
from elmo_plugin.bilm.model_files import pretrained_names
from elmo_plugin.pretraining.callbacks import METRICS_BEFORE_NAME
from elmo_plugin.pretraining.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.pretraining.starting_point import start_from_archive, start_from_files
from elmo_plugin.report.figures import DrawnPerplexities, draw_perplexities
from elmo_plugin.report.probes import DEFAULT_BILM, bilm_files, is_archive
from elmo_plugin.report.run_folder import METRICS_NAME, RunFolder, RunResult
from elmo_plugin.report.runs import RunOptions, failures_of, recorded_versions, run_all
from elmo_plugin.report.tables import FAILED, Report, settings_of, table_of, write_report
from elmo_plugin.report.task_text import TaskText, TextFiles, write_task_text
from elmo_plugin.report.variants import Experiment, Run, check_name

CALLBACK = "elmo_validate_first"

# The paper's development perplexity of SNLI, as a summary by others gives it. What it says of other tasks was
# not to be had: those rows have no figures.
_PAPER = {"pairs": ("SNLI", 72.1, 16.8)}
_NOTES = [
    "Perplexity on held-out text of the task, exact, over the whole vocabulary, in the mean of both "
    "directions; after: at the end of the best epoch, in the mean of the seeds. std: of the sample, over "
    "seeds. Each sentence counts once. Minutes: of training and validation.",
    "Paper: Peters et al. 2018 on the development data of the whole task, with a larger biLM and another "
    "vocabulary: compare the gain, not the perplexities. Its figures for SNLI were seen in a summary by "
    "others, not in the paper.",
]


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
        """Raise an error for names that occur twice or cannot name files, as `RunOptions.check` does."""
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
    """A biLM to start from: its name, its value for `LM_START`, and the words that its softmax predicts."""

    name: str
    variable: str
    vocabulary_file: Path


def compare_perplexities(options: PerplexityOptions) -> Optional[Report]:
    """
    Adapt biLMs to texts, and write a table of their perplexities before and after, and a picture unless all
    runs failed. Returns nothing after a dry run. What is wrong with a text, a biLM or the config is found
    before anything is trained.
    """
    import pandas

    options.check()
    folder, seeds = options.runs.runs_folder, options.runs.seeds
    texts = [(text, write_task_text(text, folder / "texts" / text.name)) for text in options.text]
    starts = [prepare_start(name, folder / "vocabularies") for name in options.bilm]
    pairs = list(product(starts, texts))
    experiments = [
        prepare_experiment(options, text, start, files) for start, (text, files) in pairs
    ]
    runs = [_run(experiment, seed) for experiment in experiments for seed in seeds]
    results = run_all(runs, options.runs, experiments[0].metric)
    if results is None:
        return None
    rows, drawn = [], []
    for number, (start, (text, files)) in enumerate(pairs):
        of_pair = results[number * len(seeds) :][: len(seeds)]
        row = {
            "text": text.name,
            "biLM": start.name,
            "training words": files.num_train_words,
            "held-out words": files.num_held_out_words,
            **_perplexities(of_pair, folder),
        }
        rows.append(row)
        if row["seeds"]:
            label = f"{text.name}\n{start.name}" if len(starts) > 1 else text.name
            paper = _PAPER[text.kind][1:] if text.kind in _PAPER else None
            drawn.append(DrawnPerplexities(label, (row["before"], row["after"]), paper))
    frame = pandas.DataFrame(rows, dtype=object)
    papers = [_PAPER.get(text.kind, (None, None, None)) for _, (text, _) in pairs]
    if any(map(any, papers)):
        frame[["paper's text", "paper before", "paper after"]] = papers
    failures = failures_of(results)
    failure_notes = ["Means are of the runs that did not fail.", *failures] if failures else []
    settings = settings_of(
        "perplexity", options, seeds=list(seeds), versions=recorded_versions(results)
    )
    table = table_of(
        frame,
        "perplexity",
        "Perplexity before and after adapting the biLM to a task's text",
        [*_NOTES, *failure_notes],
        settings,
    )
    title = "Perplexity before and after adapting"
    figures = {table.name: draw_perplexities(title, drawn)} if drawn else {}
    return write_report(options.runs.output, [table], figures, failures)


def prepare_start(name: str, folder: Path) -> Start:
    """Find a biLM, and write the words of its softmax, without which perplexity is not defined."""
    variable = name
    if is_archive(name):
        start = start_from_archive(name)
    elif name in pretrained_names():
        start = start_from_files(name, None)
    else:
        start = start_from_files(*bilm_files(name))
        # With a slash, by which configs tell a folder from a name.
        variable = f"./{name}" if "/" not in name else name.rstrip("/")
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
    return Start(name, variable, vocabulary_file)


def prepare_experiment(
    options: PerplexityOptions, text: TaskText, start: Start, files: TextFiles
) -> Experiment:
    """Evaluate the config, which has to measure perplexity before training, for a biLM and a text."""
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


def perplexities_of(folder: RunFolder) -> Dict[str, float]:
    """Return the perplexities of a finished run before and after: of both directions, and of each."""
    names = {"": "perplexity", "forward ": "forward_perplexity", "backward ": "backward_perplexity"}
    best = {direction: f"best_validation_{name}" for direction, name in names.items()}
    before = folder.metrics(METRICS_BEFORE_NAME, list(names.values()))
    after = folder.metrics(METRICS_NAME, list(best.values()))
    perplexities = {}
    for direction in names:
        perplexities[f"{direction}before"] = before[names[direction]]
        perplexities[f"{direction}after"] = after[best[direction]]
    return perplexities


def _perplexities(results: Sequence[RunResult], folder: Path) -> Dict[str, Any]:
    """The cells of the runs of a biLM on a text, those that failed left out."""
    import pandas

    finished = [result for result in results if result.scores is not None]
    if not finished:
        return {"seeds": 0, "before": FAILED, "after": FAILED}
    runs = pandas.DataFrame([perplexities_of(RunFolder(folder / r.run.name)) for r in finished])
    means = runs.mean()
    minutes = [result.scores.minutes for result in finished if result.scores is not None]
    return {
        "seeds": len(finished),
        **means[["before", "after"]].round(1),
        "std": round(runs["after"].std(), 2),
        "after / before": round(means["after"] / means["before"], 2),
        **means.drop(["before", "after"]).round(1),
        "minutes": round(sum(minutes) / len(minutes), 2),
    }


def _run(experiment: Experiment, seed: int) -> Run:
    has_seed = "seed" in experiment.config.get("data_loader", {})
    changes = {"data_loader.seed": seed} if has_seed else {}
    return experiment.run(experiment.name, changes, seed)


def _slug(name: str) -> str:
    """A name, or a path, as a part of file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.-") or "_"
