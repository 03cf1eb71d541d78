"""`elmo predict`: run a trained task model on JSON lines."""

import argparse
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional

from elmo_plugin.arguments import add_options, option, options_from
from elmo_plugin.commands.user_errors import needing_allennlp
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file, replaced_file

_DESCRIPTION = """\
examples:
  echo '{"sentence": "Ada Lovelace lived in London."}' | %(prog)s elmo_ner_mini -
  %(prog)s elmo_srl_mini sentences.jsonl --output-file tagged.jsonl
  %(prog)s runs/ner/model.tar.gz test.conll --use-dataset-reader

Run the model in an archive on each line of INPUT, a JSON object such as
  elmo_ner    {"sentence": "Ada Lovelace lived in London."}
  elmo_sst    {"sentence": "A good film."}
  elmo_srl    {"tokens": ["The", "cat", "sat"], "predicates": [2]}
              {"sentence": "The cat sat."}, where the archive finds predicates, as elmo_srl_mini does
  elmo_snli   {"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}
  elmo_squad  {"passage": "It rained in Paris.", "question": "Where did it rain?"}
  elmo_coref  {"document": "Mary slept. She was tired."}
Print one JSON object for each line. For a line that is not valid it is {"error": ...}, and other lines are
not affected.
"""

_BATCH_SIZE = 64


@dataclass(frozen=True)
class PredictOptions:
    """
    The arguments of the command.

    # Raises

    `ConfigurationError` for an invalid batch size, and for an output file that cannot be written.
    """

    archive_file: str = option(
        "model.tar.gz of a trained model, its folder, or the name of a task model of this package",
        positional=True,
        metavar="ARCHIVE",
    )
    input_file: str = option(
        "JSON lines, plain or .gz; - for standard input", positional=True, metavar="INPUT"
    )
    output_file: Optional[str] = option(
        "write the predictions to FILE, in place of standard output", None, metavar="FILE"
    )
    overwrite: bool = option("replace FILE if it exists", False)
    batch_size: Optional[int] = option(
        "lines that are read before they are predicted, in batches of similar length (default: 64; from "
        "standard input 1, so that each line is answered at once)",
        None,
        metavar="N",
    )
    use_dataset_reader: bool = option(
        "read INPUT as the model's data were read, not as JSON lines", False
    )
    dataset_reader_choice: str = option(
        "of which data", "validation", choices=("train", "validation")
    )
    overrides: Optional[Dict[str, Any]] = option(
        "changes to the config in ARCHIVE", None, short="-o", metavar="JSON"
    )
    weights_file: Optional[str] = option("in place of the weights in ARCHIVE", None, metavar="FILE")
    predictor: Optional[str] = option("(default: that of the model)", None, metavar="NAME")
    predictor_args: Optional[Dict[str, Any]] = option(
        """of the predictor, such as '{"tokenizer": {"type": "whitespace"}}'""",
        None,
        metavar="JSON",
    )
    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigurationError(
                f"--batch-size: found {self.batch_size}, expected a positive number."
            )
        if self.output_file is not None:
            check_output_file(self.output_file, self.overwrite, "--overwrite", "--output-file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = _DESCRIPTION
    add_options(parser, PredictOptions)


def run(args: argparse.Namespace) -> None:
    """Print the predictions, or write them to a file."""
    options = options_from(PredictOptions, args)
    predictions = _predictions(options)
    if options.output_file is None:
        for line in predictions:
            sys.stdout.write(line)
            sys.stdout.flush()
        return
    with replaced_file(options.output_file) as path, open(path, "w", encoding="utf-8") as file:
        file.writelines(predictions)


def _predictions(options: PredictOptions) -> Iterator[str]:
    with needing_allennlp("predict"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.compat.archives import keep_only_snapshots, opened_archive
        from elmo_plugin.compat.predictions import (
            STANDARD_INPUT,
            build_predictor,
            predict_data,
            predict_lines,
        )

    archive = opened_archive(
        options.archive_file, options.overrides or "", options.cuda_device, options.weights_file
    )
    keep_only_snapshots(archive.model)
    predictor = build_predictor(
        archive, options.predictor, options.dataset_reader_choice, options.predictor_args or {}
    )
    if options.use_dataset_reader:
        return predict_data(predictor, options.input_file, options.batch_size or _BATCH_SIZE)
    default_size = 1 if options.input_file == STANDARD_INPUT else _BATCH_SIZE
    return predict_lines(predictor, options.input_file, options.batch_size or default_size)
