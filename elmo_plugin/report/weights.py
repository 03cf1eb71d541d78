"""`allennlp elmo-report weights`: how trained models weigh the layers of a biLM (the paper's figure 2)."""

import argparse
import json
import re
import shlex
import statistics
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.archived_mix import mixes_in
from elmo_plugin.pretraining.starting_point import opened_archive
from elmo_plugin.report.figures import figure_class, write_figure
from elmo_plugin.report.grid_arguments import add_package_argument, json_object
from elmo_plugin.report.report_table import ReportTable, write_table
from elmo_plugin.report.versions import versions
from elmo_plugin.report.weight_figure import draw_weights

NAME = "weights"

_DIGITS = 4
_NOTE = (
    "The share of each layer in a mix, after the softmax; layer 0 is the token representation, which comes "
    "from characters alone. gamma scales the mix. Shares compare vectors as they are, or normalised where "
    "the model normalises layers: a layer of longer vectors counts for more than its share. In the paper "
    "(figure 2) mixes at the input favour layer 1, and those at the output are nearly even."
)


class MixWeights(NamedTuple):
    """
    A mix of a trained model.

    # Parameters

    name : `str`
        Of the task.
    place : `str`
        Where the mix is: `input` or `output` of a task's RNN, `embedder`, or its name in the model.
    weights : `List[float]`
        The share of each layer; they sum to 1.
    gamma : `float`
        The scale.
    is_learnt : `bool`
        Whether the shares were learnt.
    """

    name: str
    place: str
    weights: List[float]
    gamma: float
    is_learnt: bool


class Weights:
    """The subcommand, see `compare_weights`."""

    name = NAME
    help = "Show how trained models weigh the layers of their biLM."
    description = """
Which layers did tasks learn to use? Shows the normalised weights of the layers and the scale gamma for each
place where a trained model has ELMo: the paper's figure 2.

Archives of one name, such as those of several seeds, are averaged. A name is that of the archive's folder,
without the -seedN of elmo-report's own runs.

examples:
  allennlp elmo-report weights results/runs/*-both-seed*/ -s results
  allennlp elmo-report weights ner/model.tar.gz sst/model.tar.gz --names NER SST-5 -s results

An archive whose ELMo is AllenNLP's own is read with its type changed:
  --overrides '{"model.text_field_embedder.token_embedders.elmo.type": "elmo"}'

Writes weights.md, .csv, .json, .png and .svg.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "archives",
            nargs="+",
            metavar="ARCHIVE",
            help="model.tar.gz of a training run, or its folder",
        )
        parser.add_argument(
            "-s", "--output", required=True, metavar="DIR", help="results folder, made if missing"
        )
        parser.add_argument(
            "--names",
            nargs="+",
            metavar="NAME",
            help="one for each archive (default: its folder's)",
        )
        parser.add_argument(
            "-o",
            "--overrides",
            type=json_object,
            metavar="JSON",
            help="of the configs in the archives",
        )
        add_package_argument(parser)

    def run(self, args: argparse.Namespace) -> None:
        _, files = compare_weights(args.archives, args.output, args.names, args.overrides)
        for path in files:
            print(path)


def compare_weights(
    archives: Sequence[Union[str, PathLike]],
    output: Union[str, PathLike],
    names: Optional[Sequence[str]] = None,
    overrides: Optional[Dict[str, Any]] = None,
) -> Tuple[ReportTable, List[Path]]:
    """
    Write a table and a heat map of the mixes of trained models.

    # Parameters

    archives : `Sequence[str]` or `Sequence[PathLike]`
        Archives, or folders of training runs.
    output : `str` or `PathLike`
        The results folder.
    names : `Sequence[str]`, optional
        One for each archive; those of one name are averaged. By default the names of their folders, without
        `-seedN` at their end.
    overrides : `Dict[str, Any]`, optional
        Of the configs in the archives.

    # Returns

    The table, and the files that were written.

    # Raises

    `ConfigurationError` if there are not as many names as archives, an archive cannot be read or has no ELMo,
    or those of one name have other places or layers.
    """
    figure_class()  # better to miss it now
    if names is not None and len(names) != len(archives):
        raise ConfigurationError(
            f"--names: found {len(names)} for {len(archives)} archives, expected one for each."
        )
    names = list(names) if names is not None else [default_name(archive) for archive in archives]
    groups: Dict[Tuple[str, str], List[MixWeights]] = {}
    for name, archive in zip(names, archives):
        for mix in mixes_of(archive, name, overrides):
            groups.setdefault((mix.name, mix.place), []).append(mix)
    _check_groups(groups, names)
    command = ["allennlp", "elmo-report", NAME, *map(str, archives), "-s", str(output)]
    command += ["--names", *names] + (["--overrides", json.dumps(overrides)] if overrides else [])
    table = _table(groups, {"command": shlex.join(command), "versions": versions()})
    figure = draw_weights(
        {key: _means([mix.weights for mix in mixes]) for key, mixes in groups.items()},
        {key: statistics.mean(mix.gamma for mix in mixes) for key, mixes in groups.items()},
    )
    return table, [*write_table(table, output), *write_figure(figure, output, table.name)]


def mixes_of(
    archive_file: Union[str, PathLike], name: str, overrides: Optional[Dict[str, Any]] = None
) -> List[MixWeights]:
    """
    The mixes of a trained model.

    # Raises

    `ConfigurationError` if the archive cannot be read, or its model has no mix.
    """
    archive = opened_archive(archive_file, json.dumps(overrides or {}))
    mixes = [
        MixWeights(
            name,
            _place(found.name),
            found.mix.normalized_weights.tolist(),
            found.mix.gamma.item(),
            found.mix.scalar_parameters[0].requires_grad,
        )
        for found in mixes_in(archive.model)
    ]
    if not mixes:
        raise ConfigurationError(
            f"{archive_file}: the model has no mix of a biLM's layers, expected a task's model with ELMo, "
            "neither a baseline without it nor a pretrained biLM. If its ELMo is AllenNLP's own "
            "`elmo_token_embedder`, change the type, for instance with --overrides "
            """'{"model.text_field_embedder.token_embedders.elmo.type": "elmo"}'."""
        )
    return mixes


def default_name(archive_file: Union[str, PathLike]) -> str:
    """The name of an archive's folder, without the seed in the name of a run of `elmo-report`."""
    path = Path(archive_file).absolute()
    folder = path if path.is_dir() else path.parent
    return re.sub(r"-seed\d+$", "", folder.name)


def _place(mix_name: str) -> str:
    last = mix_name.rsplit(".", 1)[-1]
    if last in ("input", "output"):
        return last
    return "embedder" if "token_embedder_" in last else mix_name


def _check_groups(groups: Dict[Tuple[str, str], List[MixWeights]], names: Sequence[str]) -> None:
    for (name, place), mixes in groups.items():
        num_archives = list(names).count(name)
        num_layers = {len(mix.weights) for mix in mixes}
        if len(mixes) != num_archives or len(num_layers) > 1:
            raise ConfigurationError(
                f"--names: of the {num_archives} archives called '{name}', {len(mixes)} have ELMo at "
                f"'{place}', with {' and '.join(map(str, sorted(num_layers)))} layers. Expected the same of "
                "all, as they are averaged. Give those that differ other names."
            )


def _table(
    groups: Dict[Tuple[str, str], List[MixWeights]], settings: Dict[str, Any]
) -> ReportTable:
    num_layers = max(len(mixes[0].weights) for mixes in groups.values())
    has_several = any(len(mixes) > 1 for mixes in groups.values())
    columns = [*(f"layer {layer}" for layer in range(num_layers)), "gamma"]
    rows = []
    for (name, place), mixes in groups.items():
        values = [[*_padded(mix.weights, num_layers), mix.gamma] for mix in mixes]
        row: List[Any] = [name, place, len(mixes), *_rounded(_means(values))]
        rows.append(row + (_rounded(_deviations(values)) if has_several else []))
    notes = [_NOTE]
    if has_several:
        notes.append("Means over archives of one name, with sample standard deviations.")
    for (name, place), mixes in groups.items():
        if not all(mix.is_learnt for mix in mixes):
            notes.append(f"{name}, {place}: the shares are fixed by the config.")
    return ReportTable(
        name=NAME,
        title="Which layers tasks learn to use",
        columns=[
            *("task", "ELMo at", "archives", *columns),
            *(f"{column}, std" for column in columns if has_several),
        ],
        rows=rows,
        notes=notes,
        settings=settings,
    )


def _padded(weights: Sequence[float], num_layers: int) -> List[Optional[float]]:
    return [*weights, *[None] * (num_layers - len(weights))]


def _means(values: Sequence[Sequence[Any]]) -> List[Any]:
    """Of each position; `None` where there is nothing."""
    return [None if None in column else statistics.mean(column) for column in zip(*values)]


def _deviations(values: Sequence[Sequence[Any]]) -> List[Any]:
    return [
        None if None in column or len(column) < 2 else statistics.stdev(column)
        for column in zip(*values)
    ]


def _rounded(values: Sequence[Any]) -> List[Any]:
    return [None if value is None else round(value, _DIGITS) for value in values]
