"""
What a lower precision of a frozen biLM changes: its activations, and the scores of the models that use it.
Everything is compared with float32 on the reference kernel. It runs on the CPU.

Activations of a biLM on tokenised text, a sentence a line, sentence marks included:

    python benchmarks/precision_error.py --bilm elmo_mini --text DATA/lm/wikitext/heldout.txt

  relative error      Of a layer (0: the token representation): the Frobenius norm of the difference, over all
                      tokens, as a part of the activations' norm.
  largest difference  Of two numbers, beside the largest number of that layer.
  cosine              Of a token's two vectors: the mean and the smallest of all tokens.

Scores of trained models, and how many tokens a tagger tags otherwise. The models are evaluated as `allennlp
evaluate` does it, by the reader in the archive, and have ELMo in a text encoder (model.text_encoder.elmo) or
as an embedder of the type elmo:

    python benchmarks/precision_error.py --archive runs/ner-*/model.tar.gz --data DATA/ner/wikigold/test.conll

A precision alone runs on the kernel that is the fastest for it here; the tables name it. Others can be given:

    python benchmarks/precision_error.py --bilm elmo_mini --text DATA/lm/wikitext/heldout.txt \\
        --precisions int8 int8:reference bfloat16:onednn
"""

import argparse
import itertools
import json
import platform
import statistics
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import prepare_environment
from allennlp.data import DataLoader
from allennlp.models.archival import extracted_archive, load_archive
from allennlp.training.util import evaluate
from allennlp.version import VERSION as ALLENNLP_VERSION
from torch import Tensor
from torch.nn.functional import cosine_similarity

from elmo_plugin import BiLM, __version__, batch_to_ids
from elmo_plugin.bilm.kernels import AUTO, PRECISIONS, check_kernel, choose_kernel
from elmo_plugin.bilm.model_files import local_path
from elmo_plugin.files.text_lines import decoded_lines, unreadable

BATCH_SIZE = 32
ELMO_TYPE = "elmo"
# A text encoder's `elmo` has no type; by one of these it is known.
TEXT_ENCODER_KEYS = {"options_file", "weight_file", "placement"}


class Setting(NamedTuple):
    """In what a biLM multiplies, and what runs it."""

    precision: str
    kernel: str

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """From `PRECISION` or `PRECISION:KERNEL`, with the kernel's own name in place of `auto`."""
        precision, _, kernel = text.partition(":")
        kernel = kernel or AUTO
        check_kernel(kernel, precision)
        return cls(precision, choose_kernel(kernel, precision, torch.device("cpu")).name)

    def __str__(self) -> str:
        return f"{self.precision}, {self.kernel}"


EXACT = Setting("float32", "reference")


class LayerError:
    """How far the activations of one layer are from the exact ones, over all batches."""

    def __init__(self) -> None:
        self.squared_error = self.squared_norm = 0.0
        self.largest_difference = self.largest_activation = 0.0
        self.sum_of_cosines, self.smallest_cosine, self.num_tokens = 0.0, 1.0, 0

    def add(self, activations: Tensor, exact: Tensor) -> None:
        """Count the tokens of a batch, both `(num_tokens, dim)`."""
        # Sums of millions of squares.
        activations, exact = activations.double(), exact.double()
        difference = activations - exact
        cosines = cosine_similarity(activations, exact, dim=1)  # (num_tokens,)
        self.squared_error += float(difference.square().sum())
        self.squared_norm += float(exact.square().sum())
        self.largest_difference = max(self.largest_difference, float(difference.abs().max()))
        self.largest_activation = max(self.largest_activation, float(exact.abs().max()))
        self.sum_of_cosines += float(cosines.sum())
        self.smallest_cosine = min(self.smallest_cosine, float(cosines.min()))
        self.num_tokens += len(cosines)

    def numbers(self) -> Dict[str, float]:
        return {
            "relative_error": (self.squared_error / self.squared_norm) ** 0.5,
            "largest_difference": self.largest_difference,
            "largest_activation": self.largest_activation,
            "mean_cosine": self.sum_of_cosines / self.num_tokens,
            "smallest_cosine": self.smallest_cosine,
        }


def activation_errors(
    names: List[str], sentences: List[List[str]], settings: List[Setting]
) -> List[Dict[str, Any]]:
    """The errors of each setting and layer. `names`: options and weights, or one name for both."""
    weight_file = names[1] if len(names) > 1 else None

    def load(setting: Setting) -> BiLM:
        return BiLM.from_files(
            names[0], weight_file, precision=setting.precision, kernel=setting.kernel
        )

    exact_bilm = load(EXACT)
    bilms = {setting: load(setting) for setting in settings}
    errors = {setting: [LayerError() for _ in range(exact_bilm.num_layers)] for setting in settings}
    for start in range(0, len(sentences), BATCH_SIZE):
        character_ids = batch_to_ids(sentences[start : start + BATCH_SIZE])
        exact = exact_bilm(character_ids)
        for setting, bilm in bilms.items():
            layers = zip(errors[setting], bilm(character_ids)["activations"], exact["activations"])
            for error, activations, exact_activations in layers:
                error.add(activations[exact["mask"]], exact_activations[exact["mask"]])
    return [
        {**setting._asdict(), "layer": layer, **error.numbers()}
        for setting in settings
        for layer, error in enumerate(errors[setting])
    ]


def activation_table(rows: List[Dict[str, Any]]) -> str:
    lines = [
        "| biLM | layer | relative error | largest difference | cosine, mean | cosine, smallest |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['precision']}, {row['kernel']} | {row['layer']} | {row['relative_error']:.2g} "
            f"| {row['largest_difference']:.2g} of {row['largest_activation']:.1f} "
            f"| {row['mean_cosine']:.6f} | {row['smallest_cosine']:.6f} |"
        )
    return "\n".join(lines)


def task_scores(name: str, data: str, settings: List[Setting]) -> List[Dict[str, Any]]:
    """The metrics of an archive with each setting, and the tokens that it tags otherwise than exactly."""
    path = local_path("--archive", name)
    if not tarfile.is_tarfile(path):
        raise ConfigurationError(
            f"{name}: is no tar file, expected the archive of a trained model. Give the "
            "model.tar.gz that `allennlp train` leaves in its folder."
        )
    rows: List[Dict[str, Any]] = []
    with extracted_archive(path) as folder:
        config_file = Path(folder, "config.json")
        if not config_file.exists():
            raise ConfigurationError(
                f"{name}: holds no config.json, expected the archive of a trained model."
            )
        elmo_keys = list(find_elmo(json.loads(config_file.read_text()).get("model"), "model"))
        if not elmo_keys:
            raise ConfigurationError(
                f"{name}: its model has no ELMo, expected one in its text encoder "
                "(model.text_encoder.elmo), or an embedder of the type elmo. Leave this archive out."
            )
        for setting in dict.fromkeys([EXACT, *settings]):
            print(f"{name}: {setting} ...", file=sys.stderr)
            metrics, tags = scores_and_tags(folder, data, elmo_keys, setting)
            if not rows:
                exact_tags = tags
            rows.append({"archive": name, **setting._asdict(), "metrics": metrics})
            if tags:
                rows[-1]["num_tokens"] = sum(map(len, tags))
                rows[-1]["num_tokens_tagged_otherwise"] = num_differences(tags, exact_tags)
    return rows


def find_elmo(config: Any, key: str) -> Iterator[str]:
    """The keys under which a config has ELMo, such as `model.text_encoder.elmo`."""
    if isinstance(config, dict):
        kind = config.get("type")
        is_placed = kind is None and key.endswith(".elmo") and TEXT_ENCODER_KEYS & config.keys()
        if config.get("placement") != "none" and (kind == ELMO_TYPE or is_placed):
            yield key
        children = list(config.items())
    else:
        children = list(enumerate(config)) if isinstance(config, list) else []
    for name, child in children:
        yield from find_elmo(child, f"{key}.{name}")


def scores_and_tags(
    folder: str, data: str, elmo_keys: List[str], setting: Setting
) -> Tuple[Dict[str, float], List[List[int]]]:
    """The metrics, and the tag ids of all sentences; none if the model is no tagger."""
    overrides: Dict[str, Any] = {}
    for key in elmo_keys:
        overrides[f"{key}.precision"] = setting.precision
        overrides[f"{key}.kernel"] = setting.kernel
        # A biLM that was fine-tuned is frozen too by now.
        overrides[f"{key}.requires_grad"] = False
    archive = load_archive(folder, overrides=overrides)
    # As `allennlp evaluate`. The same seeds also give the sentences the same order, whatever the loader.
    prepare_environment(archive.config.duplicate())
    loader_key = "validation_data_loader"
    if archive.config.get(loader_key) is None:
        loader_key = "data_loader"
    loader = DataLoader.from_params(
        archive.config.get(loader_key), reader=archive.validation_dataset_reader, data_path=data
    )
    loader.index_with(archive.model.vocab)
    tags: List[List[int]] = []
    archive.model.register_forward_hook(
        lambda model, inputs, output: tags.extend(output.get("tags", []))
    )
    metrics = evaluate(archive.model, loader)
    found = {
        (module.precision, module.kernel)
        for module in archive.model.modules()
        if isinstance(module, BiLM)
    }
    assert found == {setting}, f"asked for {setting}, found {found}"
    return metrics, tags


def num_differences(tags: List[List[int]], exact_tags: List[List[int]]) -> int:
    assert list(map(len, tags)) == list(map(len, exact_tags)), "not the same sentences"
    pairs = zip(itertools.chain(*tags), itertools.chain(*exact_tags))
    return sum(tag != exact_tag for tag, exact_tag in pairs)


def task_table(rows: List[Dict[str, Any]]) -> str:
    """A row for each archive and setting, and the means over the archives."""
    # As in progress bars: those of single labels are in the JSON file.
    names = [name for name in rows[0]["metrics"] if not name.startswith("_")]
    num_archives = len({row["archive"] for row in rows})
    groups: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for row in rows:
        groups[short_name(row["archive"]), f"{row['precision']}, {row['kernel']}"] = [row]
    if num_archives > 1:
        for (_, bilm), rows_of_one in list(groups.items()):
            groups.setdefault((f"mean of {num_archives}", bilm), []).extend(rows_of_one)
    heads = ["archive", "biLM", *names]
    has_tags = "num_tokens" in rows[0]
    if has_tags:
        heads.append("tokens tagged otherwise")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for labels, group in groups.items():
        cells = list(labels)
        cells += [f"{statistics.mean(row['metrics'][name] for row in group):.4f}" for name in names]
        if has_tags:
            num_tokens = sum(row["num_tokens"] for row in group)
            differ = sum(row["num_tokens_tagged_otherwise"] for row in group)
            cells.append(f"{differ:,} of {num_tokens:,} ({differ / num_tokens:.2%})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def short_name(archive: str) -> str:
    """Archives are all called model.tar.gz: what tells them apart is the folder."""
    path = Path(archive)
    return path.parent.name if path.name == "model.tar.gz" and path.parent.name else path.name


def check_names(archives: List[str]) -> None:
    """Refuse archives that the table could not tell apart."""
    names = list(map(short_name, archives))
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"--archive: two are called {name}, expected each in a folder of another name. Rename one."
            )


def check_metrics(rows: List[Dict[str, Any]]) -> None:
    """Refuse archives of different tasks, which have no mean."""
    for row in rows:
        names = {name for name in row["metrics"] if not name.startswith("_")}
        expected = {name for name in rows[0]["metrics"] if not name.startswith("_")}
        if names != expected:
            raise ConfigurationError(
                f"{row['archive']}: its metrics are {', '.join(sorted(names))}, expected those of "
                f"{rows[0]['archive']}: {', '.join(sorted(expected))}. Evaluate one task at a time."
            )


def read_sentences(text: str, num_sentences: int) -> List[List[str]]:
    """The words of the first sentences of a file; empty lines are none."""
    path = local_path("--text", text)
    try:
        with open(path, "rb") as file:
            lines = decoded_lines(file, text, "a sentence, its words between spaces")
            sentences = (line.split() for line in lines)
            found = list(itertools.islice(filter(None, sentences), num_sentences))
    except OSError as error:
        raise unreadable(text, error) from error
    if not found:
        raise ConfigurationError(f"{text}: has no words, expected a sentence on each line.")
    return found


def versions() -> Dict[str, str]:
    return {
        "elmo_plugin": __version__,
        "allennlp": ALLENNLP_VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def compare(arguments: argparse.Namespace) -> None:
    """Measure what the arguments ask for, print it, and write it to the file."""
    settings = list(dict.fromkeys(map(Setting.parse, arguments.precisions)))
    measured: Dict[str, Any] = {"versions": versions()}
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    if arguments.bilm:
        sentences = read_sentences(arguments.text, arguments.sentences)
        rows = activation_errors(arguments.bilm, sentences, settings)
        num_words = sum(map(len, sentences))
        measured["activations"] = {
            "bilm": arguments.bilm,
            "text": arguments.text,
            "num_sentences": len(sentences),
            "num_words": num_words,
            "rows": rows,
        }
        print(
            f"\n{' '.join(arguments.bilm)}, {len(sentences):,} sentences, {num_words:,} words, ",
            end="",
        )
        print(f"beside {EXACT}:\n\n{activation_table(rows)}", flush=True)
    if arguments.archive:
        check_names(arguments.archive)
        local_path("--data", arguments.data)
        rows = []
        for name in arguments.archive:
            rows += task_scores(name, arguments.data, settings)
        check_metrics(rows)
        measured["tasks"] = {"data": arguments.data, "rows": rows}
        print(f"\n{Path(arguments.data).name}:\n\n{task_table(rows)}")
    if arguments.output:
        arguments.output.write_text(json.dumps(measured, indent=2) + "\n")


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bilm", nargs="+", metavar="NAME_OR_FILE",
                        help="whose activations: a name, as elmo_mini, or options and weights")  # fmt: skip
    parser.add_argument("--text", metavar="FILE", help="what --bilm reads")
    parser.add_argument("--sentences", type=int, default=1000, metavar="N",
                        help="sentences of --text, the first ones (default: 1000)")  # fmt: skip
    parser.add_argument("--archive", nargs="+", metavar="ARCHIVE",
                        help="whose scores: models of one task, with ELMo; also their mean")  # fmt: skip
    parser.add_argument("--data", metavar="FILE", help="what --archive is evaluated on")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), metavar="PRECISION[:KERNEL]",
                        help=f"what to compare with {EXACT} (default: {' '.join(PRECISIONS)})")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE.json",
                        help="write all numbers here, those of single labels too, and versions")  # fmt: skip
    arguments = parser.parse_args(argv)
    if not arguments.bilm and not arguments.archive:
        parser.error(
            "nothing to compare: give --bilm and --text, or --archive and --data, or all four"
        )
    for given, needed in (("bilm", "text"), ("archive", "data")):
        if bool(getattr(arguments, given)) != bool(getattr(arguments, needed)):
            parser.error(f"--{given} and --{needed} go together: give both or neither")
    if arguments.bilm and len(arguments.bilm) > 2:
        parser.error(
            f"--bilm has {len(arguments.bilm)} values, expected a name, or options and weights"
        )
    if arguments.sentences < 1:
        parser.error(f"--sentences is {arguments.sentences}, expected at least 1")
    if arguments.output and not arguments.output.parent.is_dir():
        parser.error(f"--output: there is no folder {arguments.output.parent} to write into")
    try:
        compare(arguments)
    except ConfigurationError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
