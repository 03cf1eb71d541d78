"""`elmo report weights`: the layer weights that trained models learned (the paper's figure 2)."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pandas

from elmo_plugin.arguments import Options, option
from elmo_plugin.bilm.model_files import is_task_model
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.model_mixes import mixes_in
from elmo_plugin.report.figures import draw_weights
from elmo_plugin.report.tables import (
    Part,
    Report,
    check_option,
    check_results_folder,
    settings_of,
    write_report,
)

_TITLE = "Which layers tasks learn to use"
_NOTE = (
    "The share of each layer in a mix, after the softmax; layer 0 is the token representation, which "
    "comes from characters alone. gamma scales the mix. Shares apply to vectors as they are (normalized only "
    "if the model normalizes layers), so a layer of longer vectors counts for more than its share. In the "
    "paper (figure 2) mixes at the input favor layer 1, and mixes at the output are nearly even."
)


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(Options):
    """
    Which layers did tasks learn to use? Shows the normalized weights of the layers and the scale gamma for
    each place where a trained model has ELMo: the paper's figure 2.

    Archives of the same name, such as those of several seeds, are averaged. The name of an archive is that of
    its folder, without the -seedN of the runs of `elmo report`.

    examples:
      elmo report weights results/runs/*-both-seed*/ -s results
      elmo report weights ner/model.tar.gz sst/model.tar.gz --names NER SST-5 -s results

    Change the type of AllenNLP's own ELMo to read its archive:
      --overrides '{"model.text_field_embedder.token_embedders.elmo.type": "elmo"}'

    Writes weights (.md, .csv, .json, .png, .svg).
    """

    archives: Sequence[str] = option(
        "model.tar.gz of a training run, its folder, or the name of a task model of this package",
        positional=True,
        metavar="ARCHIVE",
    )
    output: str = option("results folder, made if missing", short="-s", metavar="DIR")
    names: Optional[Sequence[str]] = option(
        "one for each archive (default: its folder's)", None, metavar="NAME"
    )
    overrides: Optional[Dict[str, Any]] = option(
        "changes to the configs in the archives", None, short="-o", metavar="JSON"
    )
    include_package: Sequence[str] = option(
        "additional package to import, which registers what a config names",
        (),
        metavar="PACKAGE",
        repeat=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_results_folder(self.output)


def compare_weights(options: WeightsOptions) -> Report:
    """Write a table and a heat map of the mixes of trained models. Models of the same name are averaged."""
    names = list(options.names or map(default_name, options.archives))
    counts = f"{len(names)} for {len(options.archives)} archives"
    check_option("--names", counts, len(names) == len(options.archives), "one for each")
    rows, fixed = [], []
    for name, archive in zip(names, options.archives):
        model = opened_archive(archive, options.overrides or "").model
        mixes_of_model = mixes_in(model, archive)
        places = Counter(found.place for found in mixes_of_model)
        for found in mixes_of_model:
            place = found.place if places[found.place] == 1 else found.name
            shares = enumerate(found.mix.normalized_weights.tolist())
            layers = {f"layer {layer}": share for layer, share in shares}
            row = {"task": name, "ELMo at": place, "layers": len(layers), **layers}
            rows.append({**row, "gamma": found.mix.gamma.item()})
            if not found.mix.trainable:
                fixed.append(f"{name}, {place}: the shares are fixed by the config.")
    mixes = pandas.DataFrame(rows)
    mixes["gamma"] = mixes.pop("gamma")  # last, even if a later model has more layers
    groups = mixes.groupby(["task", "ELMo at"], sort=False)
    for (name, place), group in groups:
        num_archives, num_layers = names.count(name), sorted(group["layers"].unique())
        if len(group) != num_archives or len(num_layers) > 1:
            raise ConfigurationError(
                f"--names: of the {num_archives} archives called '{name}', {len(group)} have ELMo at "
                f"'{place}', with {' and '.join(map(str, num_layers))} layers. Expected archives of one "
                "name to be alike, because they are averaged. Give archives that differ other names."
            )
    means, stds = (groups.agg(what).drop(columns="layers").round(4) for what in ("mean", "std"))
    table = means.copy()
    table.insert(0, "archives", groups.size())
    notes = [_NOTE, *dict.fromkeys(fixed)]
    if (table["archives"] > 1).any():
        table = table.join(stds.add_suffix(", std"))
        notes.insert(1, "Means over archives of the same name, with sample standard deviations.")
    part = Part(_TITLE, table.reset_index(), notes, draw_weights(_TITLE, means))
    return write_report(options.output, {"weights": part}, settings_of())


def default_name(archive_file: str) -> str:
    """
    Return the name of an archive's folder, without the `-seedN` of a run of `elmo report`; of a task model of
    this package its name.
    """
    if is_task_model(archive_file):
        return archive_file
    path = Path(archive_file).absolute()
    folder = path if path.is_dir() else path.parent
    return re.sub(r"-seed\d+$", "", folder.name)
