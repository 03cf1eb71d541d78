"""`elmo embed`: embed sentences with ELMo and write their vectors."""

import argparse
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from elmo_plugin.arguments import add_options, option, option_group, options_from
from elmo_plugin.commands.main import needing_allennlp
from elmo_plugin.embedding.elmo_embedder import (
    BiLMFiles,
    DeviceOptions,
    ElmoEmbedder,
    checked_device,
)
from elmo_plugin.embedding.engines import EngineOptions
from elmo_plugin.embedding.layers import POOLS, LayerChoice, layer_choice, learnt_mix
from elmo_plugin.embedding.run import EmbeddingRun, OutputOptions
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import InputOptions
from elmo_plugin.errors import ConfigurationError

logger = logging.getLogger(__name__)

_USAGE = "%(prog)s INPUT OUTPUT (--all | --top | --average | --mix ARCHIVE) [--pool POOL] [options]"

_DESCRIPTION = """\
examples:
  %(prog)s sentences.txt vectors.hdf5 --average --options-file elmo_mini
  zcat big.gz | %(prog)s - vectors.hdf5 --mix tagger/model.tar.gz --mix-name input
  %(prog)s "texts/*.gz" vectors.parquet --top --resume        # repeat it until it is complete

Write a vector for each token, or with --pool for each sentence; with --all one for each layer. OUTPUT is
  hdf5     a file with a dataset for each sentence: (tokens, width), with --all (layers, tokens, width).
           Its key is the line number, from "0". sentence_to_index, a JSON string, maps lines to keys.
  npy      a folder: vectors.npy (all tokens, width), offsets.npy, lines.npy, sentences.jsonl
  parquet  a folder of Parquet files, with a row for each sentence
It appears when it is complete. Until then finished parts are in OUTPUT.partial, for --resume.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.usage, parser.description = _USAGE, _DESCRIPTION
    files = parser.add_argument_group("files")
    files.add_argument(
        "input_file",
        metavar="INPUT",
        help="UTF-8 text, plain or .gz, a tokenized sentence on each line; .parquet; -, standard input; for "
        "parquet OUTPUT also a folder or pattern",
    )
    files.add_argument("output_file", metavar="OUTPUT", help="file or folder to write")
    layers = parser.add_argument_group("what to write (one is required)")
    choices = layers.add_mutually_exclusive_group(required=True)
    for name, help_text in (
        ("all", "all layers"),
        ("top", "the last layer"),
        ("average", "the mean of all layers"),
    ):
        choices.add_argument(
            f"--{name}", dest="layers", action="store_const", const=name, help=help_text
        )
    choices.add_argument(
        "--mix", metavar="ARCHIVE", help="the mix of layers that a task model learned, by its biLM"
    )
    layers.add_argument(
        "--pool",
        choices=POOLS,
        help="one vector for each sentence; first-last: both LSTMs' last states",
    )
    add_options(parser, ModelOptions, "what runs it")
    add_options(parser, InputOptions, "input")
    add_options(parser, OutputOptions, "output")
    add_options(parser, BatchOptions, "speed")
    add_options(parser, EngineOptions, "several processes or machines")


def run(args: argparse.Namespace) -> None:
    """Embed the sentences, and print how many there were."""
    model = options_from(ModelOptions, args)
    embedding_run = EmbeddingRun(
        args.input_file,
        args.output_file,
        options_from(InputOptions, args),
        options_from(OutputOptions, args),
        options_from(BatchOptions, args),
        options_from(EngineOptions, args),
    )
    embedding_run.check_bilm(model.stateful, model.device.cuda_device)
    embedded = embedding_run.embed(*model.load())
    output = Path(args.output_file)
    files = output.iterdir() if output.is_dir() else [output]
    size = sum(file.stat().st_size for file in files) / 1e6
    print(
        f"{output}: {embedded.num_sentences:,} sentences, {embedded.num_tokens:,} tokens, {size:,.1f} MB"
    )


@dataclass(frozen=True)
class ModelOptions:
    """
    The biLM, and which of its layers are written.

    # Parameters

    layers, mix : `str`, optional
        Either `all`, `top` or `average`; or the archive of a model whose mix and biLM are used.
    pool : `str`, optional
        One vector for each sentence, see `pool_tokens`.

    # Raises

    `ConfigurationError` for options that exclude each other.
    """

    layers: Optional[str] = None
    mix: Optional[str] = None
    pool: Optional[str] = None
    mix_name: Optional[str] = option(
        "name of the mix, such as input, if ARCHIVE has several", None, metavar="NAME"
    )
    overrides: Optional[Dict[str, Any]] = option(
        "changes to the config in ARCHIVE", None, short="-o", metavar="JSON"
    )
    files: BiLMFiles = option_group("the biLM", BiLMFiles())
    device: DeviceOptions = option_group("what runs it", DeviceOptions())
    stateful: bool = option("carry states from batch to batch, as AllenNLP 0.9 did", False)

    def __post_init__(self) -> None:
        if self.mix is None and (self.mix_name or self.overrides):
            raise ConfigurationError(
                "--mix-name and --overrides are options of --mix, which is not given. Give --mix ARCHIVE, or "
                "leave them out."
            )
        if self.mix is not None and self.files != BiLMFiles():
            raise ConfigurationError(
                f"--options-file or --weight-file is given with --mix {self.mix}, but the mix was learned "
                "for the biLM in that archive. Leave out the files, or write layers with --all."
            )

    def load(self) -> Tuple[ElmoEmbedder, LayerChoice]:
        """Load the biLM, and return its embedder and the choice of layers."""
        if self.mix is None:
            assert self.layers is not None
            embedder = ElmoEmbedder(
                **self.files.arguments, **asdict(self.device), stateful=self.stateful
            )
            return embedder, layer_choice(self.layers, self.pool)
        with needing_allennlp("--mix"):
            import elmo_plugin.plugin  # noqa: F401 - patches and registers
            from elmo_plugin.compat.archives import opened_archive
            from elmo_plugin.modules.model_mixes import choose_mix
        archive = opened_archive(self.mix, self.overrides or "")
        chosen = choose_mix(archive.model, self.mix, self.mix_name)
        logger.info("Mixing layers with '%s' of %s.", chosen.name, self.mix)
        bilm = chosen.bilm.to(checked_device(self.device.cuda_device))
        frozen = bilm.freeze(precision=self.device.precision, kernel=self.device.kernel)
        embedder = ElmoEmbedder.from_bilm(frozen, self.stateful)
        return embedder, learnt_mix(chosen.mix, chosen.name, self.pool)
