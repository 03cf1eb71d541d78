"""
What a lower precision of a frozen biLM changes in trained models: their scores, and the tokens that a tagger
tags differently, beside float32 on the reference kernel. (performance.py --sections precision has the biLM's
own activations.) The models are evaluated as `allennlp evaluate` does it, by the reader in the archive, and
have ELMo in a text encoder (model.text_encoder.elmo) or as an embedder of the type elmo:

    python benchmarks/precision_error.py --archive elmo_ner_mini --data DATA/ner/wikigold/test.conll

A precision alone runs on the kernel that is the fastest for it here; the table names it. Others can be given:
--precisions int8 int8:reference bfloat16:onednn
"""

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import pandas
import torch
from allennlp.common.util import prepare_environment
from allennlp.data import DataLoader
from allennlp.training.util import evaluate
from measurement import (
    RANDOM,
    Options,
    Sentence,
    bilm_title,
    file_label,
    float32_files,
    markdown,
    num_words,
)
from torch import Tensor
from torch.nn.functional import cosine_similarity

import elmo_plugin.plugin  # noqa: F401 - registers what archives name
from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.kernels import AUTO, PRECISIONS, check_kernel, choose_kernel
from elmo_plugin.bilm.model_files import local_path
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.tables import Part, versions

BATCH_SIZE = 32
ELMO_TYPE = "elmo"
# A text encoder's `elmo` has no type; one of these keys identifies it.
TEXT_ENCODER_KEYS = {"options_file", "weight_file", "placement"}
DIFFERENT_TAGS, NUM_TOKENS = "tokens with another tag", "tokens"


class Setting(NamedTuple):
    """The precision of a biLM's products, and the kernel that runs them."""

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

    def cells(self) -> Dict[str, str]:
        """Return the cells of the table."""
        return {
            "relative error": f"{(self.squared_error / self.squared_norm) ** 0.5:.2g}",
            "largest difference": f"{self.largest_difference:.2g} of {self.largest_activation:.1f}",
            "cosine, mean": f"{self.sum_of_cosines / self.num_tokens:.6f}",
            "cosine, smallest": f"{self.smallest_cosine:.6f}",
        }


def precision_parts(options: Options, sentences: List[Sentence]) -> Iterator[Tuple[str, Part]]:
    """Yield a table for each biLM: errors of its activations by layer and precision."""
    settings = [Setting.parse(f"{name}:{options.kernel}") for name in options.precisions]
    for name in options.bilm:
        # Random weights are large, and the reference kernel slow.
        shown = sentences[: options.effort.precision // (10 if name == RANDOM else 1)]
        with float32_files(name) as files:
            exact = BiLM.from_files(*files, precision=EXACT.precision, kernel=EXACT.kernel)
            bilms = {
                setting: BiLM.from_files(*files, precision=setting.precision, kernel=setting.kernel)
                for setting in settings
            }
        errors = {setting: [LayerError() for _ in range(exact.num_layers)] for setting in settings}
        for start in range(0, len(shown), BATCH_SIZE):
            ids = batch_to_ids(shown[start : start + BATCH_SIZE])
            expected = exact(ids)
            for setting, bilm in bilms.items():
                layers = zip(errors[setting], bilm(ids)["activations"], expected["activations"])
                for error, activations, exact_activations in layers:
                    error.add(activations[expected["mask"]], exact_activations[expected["mask"]])
        rows = [
            {"biLM": str(setting), "layer": layer, **error.cells()}
            for setting in settings
            for layer, error in enumerate(errors[setting])
        ]
        notes = [
            f"Activations on the first {len(shown):,} sentences ({num_words(shown):,} words), sentence marks "
            f"included, beside {EXACT}. Relative error: the Frobenius norm of the difference over that of "
            "the activations. Largest difference: beside the largest activation. Cosine: of both vectors."
        ]
        title = f"What a lower precision changes, {bilm_title(name, exact.options)}"
        yield f"precision-{file_label(name)}", Part(title, pandas.DataFrame(rows), notes)


def task_scores(name: str, data: str, settings: List[Setting]) -> List[Dict[str, Any]]:
    """Return a row for each setting: metrics of an archive, and how many tokens it tags differently."""
    config = opened_archive(name).config.as_dict(quiet=True)
    elmo_keys = list(find_elmo(config["model"], "model"))
    if not elmo_keys:
        raise ConfigurationError(
            f"{name}: its model has no ELMo, expected one in its text encoder "
            "(model.text_encoder.elmo), or an embedder of the type elmo. Leave this archive out."
        )
    rows: List[Dict[str, Any]] = []
    for setting in dict.fromkeys([EXACT, *settings]):
        print(f"{name}: {setting} ...", file=sys.stderr)
        metrics, tags = scores_and_tags(name, data, elmo_keys, setting)
        if not rows:
            exact_tags = tags
        row = {"archive": short_name(name), "biLM": str(setting), **metrics}
        if tags:
            row[DIFFERENT_TAGS] = num_differences(tags, exact_tags)
            row[NUM_TOKENS] = sum(map(len, tags))
        rows.append(row)
    return rows


def find_elmo(config: Any, key: str) -> Iterator[str]:
    """Yield the keys under which a config has ELMo, such as `model.text_encoder.elmo`."""
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
    name: str, data: str, elmo_keys: List[str], setting: Setting
) -> Tuple[Dict[str, float], List[List[int]]]:
    """Return the metrics, and the tag ids of all sentences: none if the model is no tagger."""
    overrides: Dict[str, Any] = {}
    for key in elmo_keys:
        overrides[f"{key}.precision"] = setting.precision
        overrides[f"{key}.kernel"] = setting.kernel
        # A biLM that was fine-tuned is frozen, too, by now.
        overrides[f"{key}.requires_grad"] = False
    archive = opened_archive(name, overrides)
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


def task_frame(rows: List[Dict[str, Any]]) -> pandas.DataFrame:
    """
    Return a row for each archive and biLM, and their means over archives if there are several.

    # Raises

    `ConfigurationError` for archives of different tasks, whose metrics have no mean.
    """
    for row in rows:
        found, expected = (", ".join(list(one)[2:]) for one in (row, rows[0]))
        if found != expected:
            raise ConfigurationError(
                f"{row['archive']}: its metrics are {found}, expected those of {rows[0]['archive']}: "
                f"{expected}. Evaluate one task at a time."
            )
    # As in progress bars: without those of single labels.
    frame = pandas.DataFrame(rows).filter(regex="^[^_]")
    archives = frame["archive"].nunique()
    if archives > 1:
        means = frame.groupby("biLM", sort=False).mean(numeric_only=True).reset_index()
        frame = pandas.concat([frame, means.assign(archive=f"mean of {archives}")])
    return frame.reset_index(drop=True)


def short_name(archive: str) -> str:
    """Return the name of the folder: archives are all called model.tar.gz."""
    path = Path(archive)
    return path.parent.name if path.name == "model.tar.gz" and path.parent.name else path.name


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archive", nargs="+", required=True, metavar="ARCHIVE",
                        help="models of one task, with ELMo; also their mean")  # fmt: skip
    parser.add_argument("--data", required=True, metavar="FILE", help="what they are evaluated on")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), metavar="PRECISION[:KERNEL]",
                        help=f"what to compare with {EXACT} (default: {' '.join(PRECISIONS)})")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE.csv",
                        help="write all numbers here, those of single labels too")  # fmt: skip
    arguments = parser.parse_args(argv)
    names = [short_name(name) for name in arguments.archive]
    if arguments.output and not arguments.output.parent.is_dir():
        parser.error(f"--output: there is no folder {arguments.output.parent} to write into")
    try:
        settings = list(dict.fromkeys(map(Setting.parse, arguments.precisions)))
        if len(set(names)) < len(names):
            raise ConfigurationError(
                f"--archive: found {', '.join(names)}, expected each in a folder of another name. Rename one."
            )
        local_path("--data", arguments.data)
        rows = []
        for name in arguments.archive:
            rows += task_scores(name, arguments.data, settings)
        frame = task_frame(rows)
    except ConfigurationError as error:
        sys.exit(str(error))
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    print(f"{Path(arguments.data).name}:\n\n{markdown(frame)}")
    if arguments.output:
        pandas.DataFrame(rows).to_csv(arguments.output, index=False)


if __name__ == "__main__":
    main()
