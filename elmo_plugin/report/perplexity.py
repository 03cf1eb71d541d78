"""`allennlp elmo-report perplexity`: what a biLM gains when it is adapted to a task's text (section 3.4)."""

import argparse
import json
import logging
import shlex
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.figures import figure_class, write_figure
from elmo_plugin.report.fine_tuning import (
    FineTuning,
    perplexities_of,
    prepare_fine_tuning,
    prepare_start,
    slug,
)
from elmo_plugin.report.grid import DEFAULT_SEEDS, RUNS_FOLDER, GridOptions, run_grid
from elmo_plugin.report.grid_arguments import add_package_argument, json_object, tell
from elmo_plugin.report.named_bilm import DEFAULT_BILM
from elmo_plugin.report.perplexity_figure import DrawnText, draw_perplexities
from elmo_plugin.report.perplexity_table import PAPER, TextResult, perplexity_table
from elmo_plugin.report.probe_options import check_results_folder, check_seeds
from elmo_plugin.report.report_table import write_table
from elmo_plugin.report.task_text import write_task_text
from elmo_plugin.report.variant_report import GridReport, failures_of
from elmo_plugin.report.versions import versions

DEFAULT_CONFIG = "training_configs/bilm_finetune.jsonnet"

logger = logging.getLogger(__name__)


class TaskText(NamedTuple):
    """
    # Parameters

    name : `str`
        What tables call it, and runs are named after.
    kind : `str`
        One of `TEXT_KINDS`.
    train, held_out : `str`
        Data to adapt to, and to measure perplexity with.
    """

    name: str
    kind: str
    train: str
    held_out: str


class PerplexityOptions(NamedTuple):
    """
    # Parameters

    texts : `Sequence[TaskText]`
        What to adapt to.
    output : `str`
        The results folder; made if it is not there. Runs are kept in its folder `runs`.
    bilms : `Sequence[str]`, optional (default = `("elmo_mini",)`)
        What to adapt, see `prepare_start`.
    config_file : `str`, optional (default = `DEFAULT_CONFIG`)
        See `prepare_fine_tuning`.
    seeds, overrides, jobs, include_packages, overwrite, recover, dry_run
        See `GridOptions`.
    """

    texts: Sequence[TaskText]
    output: str
    bilms: Sequence[str] = (DEFAULT_BILM,)
    config_file: str = DEFAULT_CONFIG
    seeds: Sequence[int] = DEFAULT_SEEDS
    overrides: Optional[Dict[str, Any]] = None
    jobs: Optional[int] = None
    include_packages: Sequence[str] = ()
    overwrite: bool = False
    recover: bool = False
    dry_run: bool = False

    def check(self) -> None:
        """
        # Raises

        `ConfigurationError` for names that stand there twice or cannot name files, seeds and jobs that make
        no runs, a results folder that is a file, and if pictures cannot be drawn.
        """
        check_seeds(self.seeds)
        check_results_folder(self.output)
        if not self.dry_run:
            figure_class()
        if self.jobs is not None and self.jobs < 1:
            raise ConfigurationError(f"--jobs: found {self.jobs}, expected a positive number.")
        names = [text.name for text in self.texts]
        for name in names:
            if slug(name) != name:
                raise ConfigurationError(
                    f"--text: found the name '{name}', expected letters, digits, '-', '_' and '.', as "
                    "files are named after it."
                )
        for option, found in (("--text", names), ("--bilm", [slug(name) for name in self.bilms])):
            twice = [name for name, count in Counter(found).items() if count > 1]
            if twice or not found:
                raise ConfigurationError(
                    f"{option}: found {', '.join(found) or 'none'}, expected one or more, each of another "
                    "name."
                )

    def grid_options(self, config_file: str) -> GridOptions:
        """Of the runs of one biLM on one text."""
        return GridOptions(
            config_file,
            self.output,
            seeds=self.seeds,
            jobs=self.jobs,
            include_packages=self.include_packages,
            overwrite=self.overwrite,
            recover=self.recover,
            dry_run=self.dry_run,
        )

    def settings(self) -> Dict[str, Any]:
        """For the table: how to make it again."""
        arguments = ["allennlp", "elmo-report", Perplexity.name]
        for text in self.texts:
            arguments += ["--text", *text]
        arguments += ["-s", self.output, "--bilm", *self.bilms, "--config", self.config_file]
        arguments += ["--seeds", *map(str, self.seeds)]
        if self.overrides:
            arguments += ["--overrides", json.dumps(self.overrides)]
        for package in self.include_packages:
            arguments += ["--include-package", package]
        return {
            "command": shlex.join(arguments),
            "seeds": list(self.seeds),
            "versions": versions(),
        }


class Perplexity:
    """The subcommand, see `compare_perplexities`."""

    name = "perplexity"
    help = "Adapt a biLM to the text of tasks, and measure what it gains."
    description = f"""
How much does a biLM gain when it is adapted to a task's text? Trains it for an epoch on the text, labels set
aside, and measures perplexity on held-out text before and after, exact, in both directions.

KIND says what of TRAIN and HELDOUT is text:
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

Needs biLMs with the softmax that they were trained with: {DEFAULT_BILM}, archives of pretraining, and what
`allennlp elmo-export` makes of those. Writes perplexity.md, .csv, .json, .png and .svg.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        # In a group, as the parser repeats defaults that the help states.
        group = parser.add_argument_group("adapting")
        group.add_argument(
            "--text",
            nargs=4,
            action="append",
            required=True,
            metavar=("NAME", "KIND", "TRAIN", "HELDOUT"),
            help="a text: what tables call it, what it is, and two files; may be given several times",
        )
        group.add_argument(
            "-s",
            "--output",
            required=True,
            metavar="DIR",
            help="results folder, made if missing; runs are kept in DIR/runs, and those that are done are "
            "not trained again",
        )
        group.add_argument(
            "--bilm",
            nargs="+",
            default=[DEFAULT_BILM],
            metavar="NAME",
            help="elmo_mini; a folder with options.json, weights.hdf5 and vocab.txt; or an archive, "
            f"model.tar.gz (default: {DEFAULT_BILM})",
        )
        group.add_argument(
            "--config",
            default=DEFAULT_CONFIG,
            metavar="FILE",
            help="of `allennlp train`; LM_START, LM_VOCABULARY, LM_TRAIN and LM_HELDOUT are set for it "
            f"(default: {DEFAULT_CONFIG})",
        )
        group.add_argument(
            "--seeds",
            type=int,
            nargs="+",
            default=list(DEFAULT_SEEDS),
            metavar="N",
            help=f"train everything once with each (default: {' '.join(map(str, DEFAULT_SEEDS))})",
        )
        group.add_argument(
            "-o",
            "--overrides",
            type=json_object,
            default={},
            metavar="JSON",
            help="""of the config, for all runs, such as '{"trainer.num_epochs": 2}'""",
        )
        group.add_argument(
            "--jobs",
            type=int,
            metavar="N",
            help="runs of a text beside each other, one for each seed at most; the cores are shared out "
            "among them (default: the number of cores)",
        )
        group.add_argument(
            "--dry-run",
            action="store_true",
            help="write texts and configs, and print the commands of the runs that are not done, one a line; "
            "when they are done, the same call without --dry-run only collects",
        )
        group.add_argument(
            "--recover",
            action="store_true",
            help="let interrupted runs go on at their last checkpoint (default: they start anew)",
        )
        group.add_argument(
            "--overwrite",
            action="store_true",
            help="replace runs of another config, or of other text (default: stop before any training)",
        )
        add_package_argument(group)

    def run(self, args: argparse.Namespace) -> None:
        tell(
            compare_perplexities(
                PerplexityOptions(
                    texts=[TaskText(*text) for text in args.text],
                    output=args.output,
                    bilms=args.bilm,
                    config_file=args.config,
                    seeds=args.seeds,
                    overrides=args.overrides,
                    jobs=args.jobs,
                    include_packages=args.include_package,
                    overwrite=args.overwrite,
                    recover=args.recover,
                    dry_run=args.dry_run,
                )
            )
        )


def compare_perplexities(options: PerplexityOptions) -> Optional[GridReport]:
    """
    Adapt biLMs to texts, and write a table and a picture of their perplexities before and after.

    # Parameters

    options : `PerplexityOptions`
        What to adapt, to what, and how.

    # Returns

    The table and what was written (no picture if all runs failed); `None` after a dry run.

    # Raises

    `ConfigurationError`, before anything is trained, for options that are not as described, for data that is
    not of its kind, for biLMs without a softmax, and for a config that cannot be evaluated; and, before the
    runs of a text, for a folder that holds a run of another config.
    """
    options.check()
    runs_folder = Path(options.output) / RUNS_FOLDER
    files = [
        write_task_text(text.kind, text.train, text.held_out, runs_folder / "texts" / text.name)
        for text in options.texts
    ]
    starts = [prepare_start(name, runs_folder / "vocabularies") for name in options.bilms]
    # All of them first, so that what is wrong with the last is known before the first is trained.
    prepared = [
        (
            TextResult(text.name, text.kind, start.name, text_files, [], [], []),
            prepare_fine_tuning(
                f"{Perplexity.name}-{text.name}-{start.slug}",
                options.config_file,
                options.overrides or {},
                start,
                text_files,
                runs_folder,
            ),
        )
        for start in starts
        for text, text_files in zip(options.texts, files)
    ]
    failures: List[str] = []
    for result, experiment in prepared:
        logger.info("%s: adapting %s.", result.text, result.bilm)
        failures += _train(result, experiment, options)
    if options.dry_run:
        return None
    results = [result for result, _ in prepared]
    table = perplexity_table(results, failures, options.settings())
    written = write_table(table, options.output)
    drawn = _drawn(results, names_bilms=len(starts) > 1)
    if drawn:
        figure = draw_perplexities("Perplexity before and after adapting", drawn)
        written += write_figure(figure, options.output, table.name)
    return GridReport([table], written, failures)


def _train(result: TextResult, experiment: FineTuning, options: PerplexityOptions) -> List[str]:
    """Train a biLM on a text with each seed, and add what came out. Returns why runs failed."""
    cells = [experiment.cell_of_seed(seed) for seed in options.seeds]
    cell_results = run_grid(cells, options.grid_options(experiment.config_file), experiment) or []
    for cell_result in cell_results:
        if cell_result.scores is not None:
            folder = Path(options.output) / RUNS_FOLDER / cell_result.cell.name
            before, after = perplexities_of(folder)
            result.before.append(before)
            result.after.append(after)
            result.minutes.append(cell_result.scores.minutes)
    return failures_of(cell_results)


def _drawn(results: Sequence[TextResult], names_bilms: bool) -> List[DrawnText]:
    drawn = []
    for result in results:
        if result.means is not None:
            label = f"{result.text}\n{result.bilm}" if names_bilms else result.text
            paper = PAPER.get(result.kind)
            ends: Optional[Tuple[float, float]] = None
            if paper is not None:
                ends = paper.before, paper.after
            drawn.append(DrawnText(label, *result.means, ends))
    return drawn
