"""`elmo report perplexity`: perplexity before and after a biLM is adapted to a task's text (section 3.4)."""

import hashlib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence

import pandas

from elmo_plugin.arguments import option
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.model_files import VOCABULARY_NAME
from elmo_plugin.embedding.sentences import SentenceSource, read_sentences
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.pretraining.corpus import check_apart, find_corpus
from elmo_plugin.pretraining.progress import METRICS_BEFORE_NAME
from elmo_plugin.pretraining.starting_point import load_start
from elmo_plugin.report.probes import check_model_is_named
from elmo_plugin.report.runs import METRICS_NAME, RunOptions, read_metrics, train
from elmo_plugin.report.tables import FAILED, Part, Report, check_option, settings_of, write_report
from elmo_plugin.report.variants import Experiment, check_file_name_part, for_file_names

_CONFIG, _CALLBACK = "bilm_finetune", "elmo_validate_first"

_DIGEST_LENGTH = 10

_DIRECTIONS = ("", "forward ", "backward ")  # of perplexities, in the names of columns
_PERPLEXITIES = [f"{way}{when}" for way in _DIRECTIONS for when in ("before", "after")]
_NOTE = (
    "Perplexity on held-out text of the task: exact, over the whole vocabulary, the mean of both directions. "
    "After: at the end of the best epoch, the mean over seeds. std: of the sample, over seeds. Repeated "
    "sentences, and held-out sentences that are in the training text, are removed. Minutes: of training and "
    "validation."
)


class TaskText(NamedTuple):
    """The text of a task: a name, and two files with a tokenized sentence on each line."""

    name: str
    train: str
    heldout: str


@dataclass(frozen=True, kw_only=True)
class PerplexityOptions(RunOptions):
    """
    How much does a biLM gain when it is adapted to a task's text? Trains it for an epoch on the text
    without its labels, and measures perplexity on held-out text before and after, exact, in both directions.

    TRAIN and HELDOUT have a tokenized sentence on each line. docs/adapt_to_your_domain.md makes them of the
    data of a task.

    examples:
      elmo report perplexity --model elmo_mini --text sst sst_train.txt sst_dev.txt -s results
      elmo report perplexity --model my_bilm runs/bilm/model.tar.gz -s results \\
          --text sst sst_train.txt sst_dev.txt --text snli snli_train.txt snli_dev.txt

    Needs biLMs with the softmax that they were trained with: elmo_mini, elmo_small, archives of pretraining,
    and files that `elmo export` wrote from those. Writes perplexity (.md, .csv, .json).
    """

    text: Sequence[TaskText] = option(
        "a text: its name and two files; repeat the flag for more texts"
    )
    model: Sequence[str] = option(
        "elmo_mini or elmo_small; a folder with options.json, weights.hdf5 and vocab.txt; or an archive, "
        "model.tar.gz",
        (),
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_is_named(self.model)
        names = [text.name for text in self.text]
        for text in self.text:
            check_file_name_part("--text", text.name)
        for flag, found in (
            ("--text", names),
            ("--model", [for_file_names(name) for name in self.model]),
        ):
            are_distinct = len(set(found)) == len(found) > 0
            check_option(
                flag, ", ".join(found) or "none", are_distinct, "one or more different names"
            )


class TextFiles(NamedTuple):
    """Text for the training of a biLM: one tokenized sentence per line."""

    train: Path
    held_out: Path
    num_train_words: int
    num_held_out_words: int


def compare_perplexities(options: PerplexityOptions) -> Optional[Report]:
    """
    Adapt biLMs to texts, and write a table of their perplexities before and after. Returns nothing after a
    dry run. Texts, biLMs and the config are checked before anything is trained.
    """
    folder = options.runs_folder
    texts = {
        text.name: write_task_text(text, folder / "texts" / text.name) for text in options.text
    }
    vocabularies = {name: write_vocabulary(name, folder / "vocabularies") for name in options.model}
    runs = {}
    for bilm, (text, files) in product(options.model, texts.items()):
        experiment = _experiment(options, bilm, vocabularies[bilm], text, files)
        for seed in options.seeds:
            runs[text, bilm, seed] = experiment.run_folder(experiment.name, {}, seed)
    trained = train(runs, options, "perplexity")
    if trained is None:
        return None
    rows = [
        [*key[:2], *_perplexities(runs[key].path), minutes]
        for key, minutes in trained.scores["minutes"].dropna().items()
    ]
    table = _table(texts, options.model, rows)
    part = Part(
        "Perplexity before and after adapting the biLM to a task's text",
        table.reset_index(),
        [_NOTE, *trained.notes()],
    )
    settings = settings_of(seeds=list(options.seeds), versions=trained.versions)
    return write_report(options.output, {"perplexity": part}, settings, trained.failures)


def write_vocabulary(name: str, folder: Path) -> Path:
    """Write the vocabulary of a biLM's softmax, without which perplexity is not defined."""
    start = load_start(name)
    if start.softmax is None or start.words is None:
        missing = f"no {VOCABULARY_NAME} beside its weights" if start.softmax else "no softmax"
        raise ConfigurationError(
            f"--model {name}: found {missing}, expected the softmax that it was trained with, and its "
            "words: without them a biLM predicts nothing. Give the archive of its training, or the files "
            "that `elmo export` wrote from it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary_file = folder / f"{for_file_names(name)}-{VOCABULARY_NAME}"
    LMVocabulary(start.words, name).to_file(vocabulary_file)
    return vocabulary_file


def _experiment(
    options: PerplexityOptions, bilm: str, vocabulary_file: Path, text_name: str, files: TextFiles
) -> Experiment:
    """Evaluate the config for a biLM and a text."""
    variables = {
        "LM_START": bilm,
        "LM_VOCABULARY": str(vocabulary_file),
        "LM_TRAIN": str(files.train),
        "LM_HELDOUT": str(files.held_out),
    }
    name = f"perplexity-{text_name}-{for_file_names(bilm)}"
    experiment = Experiment(options, _CONFIG, name, variables)
    callbacks = experiment.config["trainer"].get("callbacks") or []
    if _CALLBACK not in callbacks and {"type": _CALLBACK} not in callbacks:
        raise ConfigurationError(
            f"--overrides: trainer.callbacks is {callbacks}, expected {_CALLBACK} among them, which measures "
            "the perplexity before training. Add it."
        )
    return experiment


def _table(
    texts: Dict[str, TextFiles], bilms: Sequence[str], rows: Sequence[Sequence[Any]]
) -> pandas.DataFrame:
    """Return a row for each biLM and text, with means of `rows`, one for each run that did not fail."""
    keys = [(text, bilm) for bilm in bilms for text in texts]
    index = pandas.MultiIndex.from_tuples(keys, names=["text", "biLM"])
    groups = pandas.DataFrame(rows, columns=[*index.names, *_PERPLEXITIES, "minutes"]).groupby(
        index.names
    )
    means = groups.mean().astype(float).reindex(index)
    overall = means[["before", "after"]]
    return pandas.DataFrame(
        {
            "training words": [files.num_train_words for files in texts.values()] * len(bilms),
            "held-out words": [files.num_held_out_words for files in texts.values()] * len(bilms),
            "seeds": groups.size().reindex(index, fill_value=0),
            **overall.round(1).astype(object).mask(overall.isna(), FAILED),
            "std": groups["after"].std().round(2).reindex(index),
            "after / before": (means["after"] / means["before"]).round(2),
            **means[_PERPLEXITIES[2:]].round(1),
            "minutes": means["minutes"].round(2),
        },
        index,
    )


def _perplexities(folder: Path) -> Sequence[float]:
    """Return the perplexities of a finished run, in the order of `_PERPLEXITIES`."""
    names = [f"{way}perplexity".replace(" ", "_") for way in _DIRECTIONS]
    best = [f"best_validation_{name}" for name in names]
    before = read_metrics(folder / METRICS_BEFORE_NAME, names)
    after = read_metrics(folder / METRICS_NAME, best)
    return [value for pair in zip(names, best) for value in (before[pair[0]], after[pair[1]])]


def write_task_text(text: TaskText, folder: Path) -> TextFiles:
    """
    Write the text of a task, each sentence once, into a subfolder of `folder`; held-out sentences that are in
    the training text are left out. The name of the subfolder is a hash of the text, so that no text is
    replaced while a biLM is trained on it.
    """
    train_sources, heldout_sources = find_corpus(text.train), find_corpus(text.heldout)
    check_apart(train_sources, heldout_sources, f"--text {text.name}")
    train_text, heldout_text = map(_distinct_sentences, (train_sources, heldout_sources))
    # A biLM that has read a sentence predicts it too well.
    known = set(train_text)
    heldout_text = [sentence for sentence in heldout_text if sentence not in known]
    if not heldout_text:
        raise ConfigurationError(
            f"--text {text.name}: all held-out sentences are in the training text too, expected others. "
            "Hold out other text."
        )
    texts = train_text, heldout_text
    contents = ["".join(f"{sentence}\n" for sentence in sentences) for sentences in texts]
    digest = hashlib.sha256("\0".join(contents).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]
    (folder / digest).mkdir(parents=True, exist_ok=True)
    train, held_out = (folder / digest / name for name in ("train.txt", "heldout.txt"))
    for path, content in zip((train, held_out), contents):
        with replaced_file(path) as new_file:
            new_file.write_text(content, encoding="utf-8", newline="\n")
    num_words = [sum(len(sentence.split(" ")) for sentence in sentences) for sentences in texts]
    return TextFiles(train, held_out, *num_words)


def _distinct_sentences(files: Sequence[SentenceSource]) -> Sequence[str]:
    return list(dict.fromkeys(" ".join(words) for words in read_sentences(files)))
