"""What `elmo pretrain` does: it prepares text, config and plan, trains, exports, and shows what was made."""

import shlex
import shutil
import sys
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Sequence

from elmo_plugin.bilm.model_files import VOCABULARY_NAME
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.neighbors import (
    Occurrence,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.run import check_same_settings
from elmo_plugin.embedding.sentences import CORPUS_OPTIONS, SentenceSource, find_sources
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import (
    LOCK_NAME,
    check_name,
    claimed_folder,
    remove_partial_files,
)
from elmo_plugin.files.text import read_json
from elmo_plugin.pretraining.corpus import check_apart
from elmo_plugin.pretraining.export import CARD_NAME, METRICS_NAME, export_model
from elmo_plugin.pretraining.plan import (
    CONFIG_NAME,
    PLAN_NAME,
    RUN_NAME,
    Plan,
    Settings,
    base_config,
    fit_to_text,
    make_plan,
    write_config,
)
from elmo_plugin.pretraining.process import (
    LOG_NAME,
    MEASURING_NAME,
    RESUME_ADVICE,
    measured_speed,
    train,
)
from elmo_plugin.pretraining.progress import METRICS_BEFORE_NAME, PROGRESS_NAME, last_progress
from elmo_plugin.pretraining.starting_point import (
    BILM_NAMES,
    StartingPoint,
    load_start,
    save_bilm,
)
from elmo_plugin.pretraining.text import HELDOUT_NAME, TEXT_NAME, prepare_text

if TYPE_CHECKING:
    from elmo_plugin.commands.pretrain import PretrainOptions

# A file in the folder of each training, which marks it as written by this command.
MARK_NAME = "made_by_elmo_pretrain"
# The biLM that it starts from, in bilm-tf's form.
START_NAME = "start"
NUM_SHOWN_WORDS, MAX_COUNT_OF_SHOWN_WORDS, TOKENS_AROUND = 3, 20, 10


def pretrain(options: "PretrainOptions") -> None:
    """Train, and print what was made and what to try with it."""
    output = Path(options.output)
    folder = output / "training"
    _check_output(options, output, folder)
    with claimed_folder(folder, f"OUTPUT: another process is training in {folder}. Wait for it."):
        (folder / MARK_NAME).touch()
        if options.overwrite or not (folder / PLAN_NAME).exists():
            _prepare(options, folder)
        content = read_json(folder / PLAN_NAME, "the plan of a training")
        plan = Plan.from_dict(content["plan"])
        check_same_settings(content["arguments"], options.plan_arguments(), str(folder))
        try:
            train(folder, plan)
            _export(options, output, folder, plan)
            _show(output, folder)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(RESUME_ADVICE) from None
        except OSError as error:  # such as a full disk
            reason = f"{error.strerror or error}; {RESUME_ADVICE}"
            raise OSError(error.errno, reason, error.filename) from error


def _check_output(options: "PretrainOptions", output: Path, folder: Path) -> None:
    check_name(output, "OUTPUT")
    is_begun = (folder / PLAN_NAME).exists()
    if output.exists() and not output.is_dir():
        raise ConfigurationError(
            f"OUTPUT: {output} is a file, expected a folder. Give another path."
        )
    if any(
        Path(text).is_dir() and output.is_dir() and output.samefile(text) for text in options.text
    ):
        raise ConfigurationError(
            f"OUTPUT: {output} is the folder of the text, expected another folder. Give another path."
        )
    if options.from_ is not None and not output.exists() and output == Path(options.from_):
        raise ConfigurationError(
            f"OUTPUT: {output} is the name of the biLM to adapt, expected another one. Give another folder."
        )
    in_folder = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if in_folder - {LOCK_NAME} and MARK_NAME not in in_folder:
        raise ConfigurationError(
            f"OUTPUT: {folder} was not written by this command, so it is not replaced. Give another path, or "
            "remove it."
        )
    found = {path.name for path in output.iterdir()} if output.exists() else set()
    if not found - {folder.name} and not is_begun:
        return  # new, or an earlier call ended before it had a plan
    written = sorted(found & {*BILM_NAMES, CARD_NAME})
    if written and MARK_NAME not in in_folder:
        raise ConfigurationError(
            f"OUTPUT: {output} has {', '.join(written)}, but no {folder.name}/{MARK_NAME}, with which this "
            "command marks what it wrote, so they are not replaced. Give another path, or move them away."
        )
    if not (options.overwrite or (options.resume and is_begun)):
        advice = "--resume to continue the training in it, " if is_begun else ""
        raise ConfigurationError(
            f"OUTPUT: {output} exists, expected a new folder. Give another path, {advice}or --overwrite to "
            "replace what an earlier training wrote."
        )


def _remove_training(folder: Path) -> None:
    """
    Remove what an earlier training wrote, and nothing that was trained by hand beside it; the plan first:
    without it nothing is resumed.
    """
    for name in (PLAN_NAME, CONFIG_NAME, VOCABULARY_NAME, LOG_NAME):
        (folder / name).unlink(missing_ok=True)
    for name in (RUN_NAME, MEASURING_NAME, START_NAME, TEXT_NAME):
        if (folder / name).exists():
            shutil.rmtree(folder / name)


def _prepare(options: "PretrainOptions", folder: Path) -> None:
    """
    Check the input, remove an earlier training, and write text, config and plan; the plan last: a folder with
    it is complete.
    """
    input_options = replace(CORPUS_OPTIONS, tokenizer=options.tokenizer, column=options.column)
    sources = find_sources(options.text, input_options, options.output)
    heldout = find_sources(options.heldout, input_options) if options.heldout else []
    check_apart(sources, heldout, "--heldout")
    start = _checked_start(options.from_) if options.from_ else None
    _check_not_inside([*sources, *heldout], options.from_, folder)
    words = start and start.words
    settings = Settings(
        size=options.chosen_size,
        start=START_NAME if start else None,
        has_softmax=words is not None,
        hours=options.chosen_hours,
        epochs=options.epochs,
    )
    config = base_config(settings)
    if any((folder / name).exists() for name in (PLAN_NAME, RUN_NAME)):
        # An earlier training is removed only if the text that replaces it can be read to its end.
        for source in [*sources, *heldout]:
            if source.is_file:
                deque(source.texts(), maxlen=0)
    _remove_training(folder)
    if start is not None:
        save_bilm(start, folder / START_NAME)
        start = None  # not in memory during the training
    text = prepare_text(sources, heldout, folder, settings.max_vocabulary, words)
    fit_to_text(config, settings, text)
    print("measuring the speed of this machine ...", file=sys.stderr)
    speed = measured_speed(config, folder, settings.max_words(text))
    plan = make_plan(config, settings, text, speed)
    _print_lines(plan.lines(settings))
    write_config(config, folder / CONFIG_NAME, shlex.join(["elmo", *sys.argv[1:]]))
    plan.to_file(folder / PLAN_NAME, options.plan_arguments())


def _checked_start(name: str) -> StartingPoint:
    """
    Load the biLM that a training starts from.

    # Raises

    `ConfigurationError` if it cannot be loaded or trained, or if it has a softmax, but not its words.
    """
    start = load_start(name)
    if start.bilm.options.is_many_langs:
        raise ConfigurationError(
            f"--from: {name} is a model of ELMoForManyLangs, which cannot be trained, expected another biLM. "
            "Give one, or train a new one: leave out --from."
        )
    start.check_words()
    return start


def _check_not_inside(
    sources: Iterable[SentenceSource], start: Optional[str], folder: Path
) -> None:
    """Refuse input in the folder of the training, whose content is replaced."""
    paths = [Path(source.name) for source in sources if source.is_file]
    for path in [*paths, *map(Path, [start] if start else [])]:
        if path.resolve().is_relative_to(folder.resolve()):
            raise ConfigurationError(
                f"OUTPUT: the input {path} is inside of {folder}, which this training replaces, expected "
                "input elsewhere. Copy it to another folder, or give another OUTPUT."
            )


def _export(options: "PretrainOptions", output: Path, folder: Path, plan: Plan) -> None:
    record = last_progress(folder / RUN_NAME / PROGRESS_NAME)
    assert record is not None  # of the training that has ended
    is_new = options.from_ is None
    kind = f"a biLM of size {options.chosen_size}" if is_new else f"{options.from_}, adapted"
    lines = [
        f"{output.resolve().name}: {kind}, trained by `elmo pretrain` on {plan.text.train_words:,} words.",
        "",
        *(f"- {label}: {value}" for label, value in plan.text.lines().items()),
        f"- training: {record['words']:,} words read in {record['updates']:,} updates and "
        f"{record['seconds'] / 3600:.2f} hours",
    ]
    remove_partial_files(output)  # of an earlier call
    export_model(
        folder / RUN_NAME / "model.tar.gz",
        output,
        overwrite=True,
        license=options.license,
        description="\n".join(lines) + "\n",
    )


def _show(output: Path, folder: Path) -> None:
    """Print the perplexities, some words with their neighbors in the held-out text, and what to try."""
    metrics = read_json(folder / RUN_NAME / METRICS_NAME, "the metrics of a training")
    found = [metrics[f"best_validation_{way}perplexity"] for way in ("", "forward_", "backward_")]
    before = folder / RUN_NAME / METRICS_BEFORE_NAME
    lines = {
        "perplexity": "{:.1f} of held-out text (forward {:.1f}, backward {:.1f})".format(*found)
    }
    if before.exists():
        value = read_json(before, "the metrics before a training")["perplexity"]
        lines["perplexity"] += f"; {value:.1f} before"
    lines["best epoch"] = f"{metrics['best_epoch'] + 1} of {metrics['epoch'] + 1}"
    _print_lines(lines)
    heldout = folder / HELDOUT_NAME
    _print_neighbors(output, heldout)
    text, model = (shlex.quote(str(path)) for path in (heldout, output))
    print(
        f"\n{output} is complete. Try:\n"
        f"  elmo neighbors {text} --word WORD --sentence SENTENCE --model {model}\n"
        f"  elmo embed SENTENCES vectors.hdf5 --average --model {model}"
    )


def _print_neighbors(output: Path, heldout: Path) -> None:
    sentences = list(SentenceSource(heldout, CORPUS_OPTIONS).sentences())
    embedder = ElmoEmbedder(output)
    for word in _shown_words(sentence.tokens for sentence in sentences):
        occurrences, _ = find_occurrences(sentences, word, str(heldout))
        # One of each sentence: the nearest is often in the same one.
        occurrences = list({occurrence.tokens: occurrence for occurrence in occurrences}.values())
        vectors = embed_occurrences(embedder, occurrences, show_progress=False)
        nearest = nearest_occurrences(occurrences[0], vectors[0], occurrences, vectors, top=1)
        print(f"\n'{word}', and the most similar of its {len(occurrences) - 1} other sentences:")
        for occurrence in [occurrences[0], *(neighbor.occurrence for neighbor in nearest)]:
            print(f"  {_around(occurrence)}")


def _shown_words(sentences: Iterable[Sequence[str]]) -> List[str]:
    """Return some words of several sentences, but not of many: those have a meaning of their own."""
    distinct = dict.fromkeys(map(tuple, sentences))
    counts = Counter(word for tokens in distinct for word in dict.fromkeys(tokens))
    return [
        word
        for word, count in counts.most_common()
        if 3 <= count <= MAX_COUNT_OF_SHOWN_WORDS and word[0].isalpha() and not word[0].isupper()
    ][:NUM_SHOWN_WORDS]


def _around(occurrence: Occurrence) -> str:
    """Return the word with some of the sentence on both sides."""
    position = occurrence.position or 0
    start = max(0, position - TOKENS_AROUND)
    tokens = occurrence.tokens[start : position + TOKENS_AROUND + 1]
    return occurrence._replace(tokens=tokens, position=position - start).marked_sentence


def _print_lines(lines: Dict[str, str]) -> None:
    for label, value in lines.items():
        print(f"{label:<16}{value}", flush=True)
