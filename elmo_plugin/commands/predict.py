"""`elmo predict`: run a trained task model on JSON lines, by AllenNLP's `predict`."""

import argparse
import tarfile
import zlib
from dataclasses import dataclass, replace
from typing import Any, Dict, Optional

from elmo_plugin.arguments import add_options, command_arguments, option, option_group, options_from
from elmo_plugin.commands.user_errors import needing_allennlp
from elmo_plugin.errors import ConfigurationError

_DESCRIPTION = """\
examples:
  echo '{"sentence": "Ada Lovelace lived in London."}' | %(prog)s elmo_ner_mini -
  %(prog)s elmo_srl_mini sentences.jsonl --output-file tagged.jsonl --silent
  %(prog)s runs/ner/model.tar.gz test.conll --use-dataset-reader

Run the model in an archive on each line of INPUT, a JSON object such as
  elmo_ner    {"sentence": "Ada Lovelace lived in London."}
  elmo_sst    {"sentence": "A good film."}
  elmo_srl    {"tokens": ["The", "cat", "sat"], "predicates": [2]}
              {"sentence": "The cat sat."}, where the archive finds predicates, as elmo_srl_mini does
  elmo_snli   {"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}
  elmo_squad  {"passage": "It rained in Paris.", "question": "Where did it rain?"}
  elmo_coref  {"document": "Mary slept. She was tired."}
This is `allennlp predict` with this package loaded. For an object that is not valid, the prediction is
{"error": ...}, and other lines are not affected.
"""

_BATCH_SIZE = 64


@dataclass(frozen=True)
class ReaderOptions:
    """How AllenNLP reads the input, if it is not JSON lines."""

    use_dataset_reader: bool = option("read INPUT as the model's data were read", False)
    dataset_reader_choice: str = option(
        "of which data", "validation", choices=("train", "validation")
    )
    multitask_head: Optional[str] = option("head of a multitask model", None, metavar="NAME")


@dataclass(frozen=True)
class ModelOptions:
    """The model in the archive, and what runs it."""

    overrides: Optional[Dict[str, Any]] = option(
        "changes to the config in ARCHIVE", None, short="-o", metavar="JSON"
    )
    weights_file: Optional[str] = option("in place of the weights in ARCHIVE", None, metavar="FILE")
    predictor: Optional[str] = option("(default: that of the model)", None, metavar="NAME")
    predictor_args: Optional[Dict[str, Any]] = option(
        """of the predictor, such as '{"spacy_model": "en_core_web_sm"}'""", None, metavar="JSON"
    )
    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")


@dataclass(frozen=True)
class PredictOptions:
    """
    The options of `allennlp predict`.

    # Raises

    `ConfigurationError` for a batch size that is not positive, and if there would be no output.
    """

    archive_file: str = option(
        "model.tar.gz of a trained model, its folder, or the name of a task model of this package",
        positional=True,
        metavar="ARCHIVE",
    )
    input_file: str = option("JSON lines; - for standard input", positional=True, metavar="INPUT")
    output_file: Optional[str] = option(
        "write predictions here too, as JSON lines", None, metavar="FILE"
    )
    silent: bool = option("do not print predictions; needs --output-file", False)
    batch_size: Optional[int] = option(
        "lines that are read before they are predicted, in batches of similar length (default: 64; from "
        "standard input 1, so that each line is answered at once)",
        None,
        metavar="N",
    )
    file_friendly_logging: bool = option("progress in lines, for logs in files", False)
    reader: ReaderOptions = option_group("other input than JSON", ReaderOptions())
    model: ModelOptions = option_group("the model", ModelOptions())

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigurationError(
                f"--batch-size: found {self.batch_size}, expected a positive number."
            )
        if self.silent and self.output_file is None:
            raise ConfigurationError(
                "--silent is given without --output-file, so there would be no output. Give --output-file "
                "FILE, or leave out --silent."
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = _DESCRIPTION
    add_options(parser, PredictOptions)


def run(args: argparse.Namespace) -> None:
    """Print predictions, and write them to a file if there is one."""
    options = options_from(PredictOptions, args)
    if options.batch_size is None:
        options = replace(options, batch_size=1 if options.input_file == "-" else _BATCH_SIZE)
    with needing_allennlp("predict"):
        from allennlp.commands.predict import Predict

        import elmo_plugin.plugin  # noqa: F401 - patches and registers

    parser = Predict().add_subparser(argparse.ArgumentParser().add_subparsers())
    arguments = parser.parse_args(command_arguments(options))
    try:
        arguments.func(arguments)
    except (EOFError, tarfile.TarError, zlib.error) as error:
        raise ConfigurationError(
            f"{options.archive_file}: cannot be loaded as an archive ({error}), expected the model.tar.gz of "
            "a training run, or its folder. Correct the path."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{options.input_file}: found a line that cannot be read ({error}), expected UTF-8. Convert the "
            "file."
        ) from error
