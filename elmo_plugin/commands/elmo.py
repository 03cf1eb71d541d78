"""`allennlp elmo`: embed sentences with ELMo and write their vectors."""

import argparse
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional, Tuple

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from elmo_plugin.arguments import add_options, option, option_group, options_from
from elmo_plugin.commands.user_errors import add_debug_argument, exits_on_user_errors
from elmo_plugin.embedding.bilm_options import BiLMFiles, DeviceOptions
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.layers import (
    LayerChoice,
    choose_mix,
    frozen_copy,
    layer_choice,
    learnt_mix,
)
from elmo_plugin.embedding.ray_engine import EngineOptions
from elmo_plugin.embedding.run import EmbeddedFile, EmbeddingRun, OutputOptions
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import InputOptions
from elmo_plugin.pretraining.starting_point import opened_archive

logger = logging.getLogger(__name__)

_DESCRIPTION = """
Embed sentences with ELMo and write their vectors: as HDF5, in the layout of AllenNLP 0.9, as Parquet, or as
numpy arrays.

INPUT is one of:
  - UTF-8 text, plain or .gz: one sentence on each line, tokens separated by white space
  - a .parquet file with a column of sentences, or of lists of tokens
  - -, standard input
  - for a parquet OUTPUT also a folder, or a quoted pattern, of such files
All files are checked before any work. OUTPUT appears when it is complete. Until then finished parts are in
OUTPUT.partial, and --resume continues an interrupted run.
"""

_EPILOG = """
examples:
  allennlp elmo sentences.txt vectors.hdf5 --average --options-file elmo_mini
  zcat big.txt.gz | allennlp elmo - vectors.hdf5 --mix tagger/model.tar.gz --mix-name input --dtype float16
  allennlp elmo big.txt.gz vectors.parquet --top --resume        # repeat it until it is complete
  allennlp elmo "texts/*.txt.gz" vectors.parquet --top --engine ray --num-workers 4 --resume

hdf5: OUTPUT holds one dataset for each sentence. Its key is the line number as a string, from "0". Its shape,
for a model with 3 layers (the token representation and two LSTM layers) of width 1024 and n tokens:
  --all                      (3, n, 1024)
  --top, --average, --mix    (n, 1024)
The dataset sentence_to_index is a JSON string that maps each stripped line to its key; of equal lines, to the
key of the last. To read it:
  with h5py.File("vectors.hdf5") as file:
      keys = json.loads(file["sentence_to_index"][0])
      vectors = file[keys["The cat sat ."]][...]

parquet: OUTPUT is a folder of Parquet files with a row for each sentence and the columns source, line (from
0), sentence, tokens, and vectors, a list with the vector of each token; with --all the columns layer_0,
layer_1 and so on instead of vectors. To read it: pyarrow.parquet.read_table("vectors.parquet").

npy: OUTPUT is a folder. vectors.npy holds the vectors of all sentences in order, (tokens, 1024), or
(tokens, 3, 1024) with --all; those of sentence i are vectors[offsets[i]:offsets[i + 1]], with offsets.npy.
lines.npy has the line number of each sentence, sentences.jsonl its tokens. To read a part of it:
  vectors = numpy.load("vectors.npy/vectors.npy", mmap_mode="r")

Memory does not grow with INPUT, except for HDF5's sentence_to_index: about 200 bytes plus the line for each
distinct line. --forget-sentences leaves it out. Disk: layers x tokens x width x 4 bytes (2 with float16);
hdf5 and npy need twice as much while parts are merged at the end.

--resume can be given in every call: without parts it starts from the beginning, and with a complete OUTPUT it
does nothing. A run that was killed loses at most its unfinished part: 2,048 sentences, or 128 MiB of vectors.
The input and settings must be the same, except batch limits, keys, device, kernel and engine; vectors are
then equal to within rounding (1e-6). Standard input must be given again from its beginning, and is compared.
OUTPUT is replaced only with --overwrite, or if this command wrote it from the same input with the same
settings.

--mix ARCHIVE writes the weighted sum of layers that a task model learned, gamma included, without dropout and
projection. ARCHIVE is a model of this package's tasks, or a model with an "elmo" embedder. The biLM in the
archive is used, since the mix was learned for it: leave out --options-file and --weight-file. If the model
has several mixes, such as those of input ELMo and output ELMo, choose one with --mix-name.

--engine ray embeds with --num-workers processes on this machine, or on the Ray cluster at --ray-address.
INPUT and OUTPUT must have the same paths on all nodes. The sentences of a worker that dies are embedded
again.

Each sentence starts from zero states, so its vectors do not depend on other sentences. --stateful carries
states from batch to batch, as AllenNLP 0.9 did: vectors then depend on the order and on --batch-size.
"""


@Subcommand.register("elmo")
class ElmoCommand(Subcommand):
    """Embed text: `allennlp elmo INPUT OUTPUT (--all | --top | --average | --mix ARCHIVE)`."""

    requires_plugins = True

    def add_subparser(self, parser: Any) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            epilog=_EPILOG,
            help="Embed sentences with ELMo.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument(
            "input_file",
            metavar="INPUT",
            help="file of sentences; - for standard input; also a folder or a quoted pattern of files",
        )
        subparser.add_argument(
            "output_file",
            metavar="OUTPUT",
            help="file (hdf5) or folder (parquet, npy) to write",
        )
        layers = subparser.add_argument_group("what to write (one is required)")
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
            "--mix", metavar="ARCHIVE", help="the mix of layers that the model in ARCHIVE learned"
        )
        add_options(subparser, ModelOptions, "states")
        add_options(subparser, InputOptions, "input")
        add_options(subparser, OutputOptions, "output")
        add_options(subparser, BatchOptions, "speed")
        add_options(subparser, EngineOptions, "several processes or machines")
        subparser.add_argument(
            "--file-friendly-logging",
            action="store_true",
            help="write one line of progress every ten seconds, for logs in files",
        )
        add_debug_argument(subparser)
        subparser.set_defaults(func=_embed_from_args)
        return subparser


@dataclass(frozen=True)
class MixOptions:
    """The mix of an archive to use."""

    mix_name: Optional[str] = option(
        "name of a mix in ARCHIVE, such as input or output; needed only if it has several",
        None,
        metavar="NAME",
    )
    overrides: str = option(
        "JSON that overrides the config in ARCHIVE", "", short="-o", metavar="JSON"
    )


@dataclass(frozen=True)
class ModelOptions:
    """
    The biLM, and which of its layers are written.

    # Parameters

    layers : `str`, optional
        `all`, `top` or `average`. Give either this or `mix`.
    mix : `str`, optional
        The archive of a model whose mix and biLM are used.
    mix_options, files, device
        See their classes.
    stateful : `bool`, optional (default = `False`)
        See `ElmoEmbedder`.
    vocab_path : `str`, optional
        Has no effect.

    # Raises

    `ConfigurationError` for options that exclude each other.
    """

    layers: Optional[str] = None
    mix: Optional[str] = None
    mix_options: MixOptions = option_group("the mix", MixOptions())
    files: BiLMFiles = option_group("the biLM", BiLMFiles())
    device: DeviceOptions = option_group("what runs it", DeviceOptions())
    stateful: bool = option(
        "carry states from batch to batch, as AllenNLP 0.9 did; not with --batch-tokens", False
    )
    vocab_path: Optional[str] = option(
        "has no effect, and had none in AllenNLP 0.9: the biLM reads characters", None
    )

    def __post_init__(self) -> None:
        if (self.layers is None) == (self.mix is None):
            raise ConfigurationError(
                f"layers is {self.layers} and mix is {self.mix}, expected one of them. Give all, top or "
                "average, or the archive of a mix."
            )
        if self.mix is None and self.mix_options != MixOptions():
            raise ConfigurationError(
                "--mix-name and --overrides are options of --mix, which is not given. Give --mix ARCHIVE, or "
                "leave them out."
            )
        if self.mix is not None and self.files != BiLMFiles():
            raise ConfigurationError(
                f"--options-file or --weight-file is given with --mix {self.mix}, but the mix was learned "
                "for the biLM in that archive. Leave out the files, or write layers with --all."
            )
        if self.vocab_path is not None:
            logger.warning("--vocab-path has no effect, as in AllenNLP 0.9. Leave it out.")

    def load(self) -> Tuple[ElmoEmbedder, LayerChoice]:
        """Load the biLM, and return its embedder and the choice of layers."""
        if self.mix is None:
            assert self.layers is not None
            embedder = ElmoEmbedder(
                **self.files.arguments, **asdict(self.device), stateful=self.stateful
            )
            return embedder, layer_choice(self.layers)
        archive = opened_archive(self.mix, self.mix_options.overrides)
        chosen = choose_mix(archive.model, self.mix, self.mix_options.mix_name)
        logger.info("Mixing layers with '%s' of %s.", chosen.name, self.mix)
        bilm = frozen_copy(chosen.bilm, self.stateful, self.device.precision, self.device.kernel)
        embedder = ElmoEmbedder.from_bilm(bilm, self.device.cuda_device)
        return embedder, learnt_mix(chosen.mix, chosen.name)


def embed_text(run: EmbeddingRun, model: ModelOptions) -> EmbeddedFile:
    """
    Embed the sentences of a run, as `allennlp elmo` does.

    # Raises

    `ConfigurationError` for invalid files, options and sentences; `OSError` if writing fails.
    """
    run.check_bilm(model.stateful, model.device.cuda_device)
    return run.embed(*model.load())


@exits_on_user_errors
def _embed_from_args(args: argparse.Namespace) -> None:
    model = options_from(ModelOptions, args)
    run = EmbeddingRun(
        args.input_file,
        args.output_file,
        options_from(InputOptions, args),
        options_from(OutputOptions, args),
        options_from(BatchOptions, args),
        options_from(EngineOptions, args),
        args.file_friendly_logging,
    )
    embedded = embed_text(run, model)
    output = Path(args.output_file)
    files = output.iterdir() if output.is_dir() else [output]
    size = sum(file.stat().st_size for file in files) / 1e6
    print(
        f"{output}: {embedded.num_sentences:,} sentences, {embedded.num_tokens:,} tokens, {size:,.1f} MB"
    )
