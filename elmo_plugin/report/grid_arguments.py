"""What subcommands that train runs have in common: their arguments, and what they say at the end."""

import argparse
import json
import sys
from typing import Any, Dict, Optional

from elmo_plugin.report.grid import DEFAULT_SEEDS, GridOptions
from elmo_plugin.report.variant_report import GridReport


def add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `GridOptions`."""
    parser.add_argument(
        "config_file",
        metavar="CONFIG",
        help="a config of `allennlp train` with model.text_encoder.elmo; the environment variables that it "
        "reads are to be set",
    )
    # In a group, as the parser repeats defaults that the help states.
    group = parser.add_argument_group("training runs")
    group.add_argument(
        "-s",
        "--output",
        required=True,
        metavar="DIR",
        help="results folder, made if missing; runs are kept in DIR/runs, and reports share those that are "
        "the same",
    )
    group.add_argument(
        "--name",
        help="of this experiment, in the names of runs and files (default: the task's); another one for "
        "other data",
    )
    group.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=DEFAULT_SEEDS,
        metavar="N",
        help=f"train everything once with each (default: {' '.join(map(str, DEFAULT_SEEDS))})",
    )
    group.add_argument(
        "-o",
        "--overrides",
        type=json_object,
        default={},
        metavar="JSON",
        help="""of the config, for all runs, such as '{"trainer.num_epochs": 5}'""",
    )
    group.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs beside each other; the cores are shared out among them (default: the number of cores)",
    )
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="print the commands of the runs that are not done, one a line, for a scheduler of yours; when "
        "they are done, the same call without --dry-run only collects. They are for this folder and Python",
    )
    group.add_argument(
        "--recover",
        action="store_true",
        help="let interrupted runs go on at their last checkpoint (default: they start anew, as what a "
        "recovered run draws at random is not that of its seed alone)",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="replace runs of another config (default: stop before any work)",
    )
    add_package_argument(group)


def add_package_argument(group: argparse._ActionsContainer) -> None:
    """`--include-package`, as other subcommands of `allennlp` have it."""
    group.add_argument(
        "--include-package",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="additional packages to import, which register what a config names",
    )


def grid_options(args: argparse.Namespace) -> GridOptions:
    """The options that the arguments are."""
    return GridOptions(
        config_file=args.config_file,
        output=args.output,
        seeds=list(args.seeds),
        overrides=args.overrides,
        name=args.name,
        jobs=args.jobs,
        include_packages=args.include_package,
        overwrite=args.overwrite,
        recover=args.recover,
        dry_run=args.dry_run,
    )


def tell(report: Optional[GridReport]) -> None:
    """Print what was written; and leave with an error if runs failed."""
    if report is None:
        return
    for path in report.files:
        print(path)
    if report.failures:
        sys.exit(f"{len(report.failures)} runs failed:\n" + "\n".join(report.failures))


def json_object(text: str) -> Dict[str, Any]:
    """An argument that is a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text}, which is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"found {text}, expected a JSON object of keys and values")
    return value
