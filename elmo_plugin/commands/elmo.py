"""`allennlp elmo`: from sentences to their ELMo vectors."""

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
Embed sentences with ELMo and write their vectors: as HDF5, laid out as by AllenNLP 0.9, as Parquet, or as
numpy arrays.

INPUT is UTF-8 text, one sentence on each line, tokens set apart by white space; plain or .gz, or - for
standard input; or a .parquet file with a column of sentences, or of lists of tokens; for a parquet OUTPUT
also a folder or a quoted pattern of such files. Files are checked to their end before any work. OUTPUT
appears when it is complete. Until then finished parts are in OUTPUT.partial, and an interrupted run is
resumed by --resume.
"""

_EPILOG = """
examples:
  allennlp elmo sentences.txt vectors.hdf5 --average --options-file elmo_mini
  zcat big.txt.gz | allennlp elmo - vectors.hdf5 --mix tagger/model.tar.gz --mix-name input --dtype float16
  allennlp elmo big.txt.gz vectors.parquet --top --resume        # again, until it is done
  allennlp elmo "texts/*.txt.gz" vectors.parquet --top --engine ray --num-workers 4 --resume

As hdf5, OUTPUT holds one dataset for each sentence. Its key is the number of the line as a string, from
"0". Its shape, for a model with 3 layers (the token representation and two LSTM layers) of width 1024 and n
tokens:
  --all                      (3, n, 1024)
  --top, --average, --mix    (n, 1024)
One more dataset, sentence_to_index, is a string that holds JSON: the key of each line, stripped. Of lines
that are the same it has the last one's. To read it all:
  with h5py.File("vectors.hdf5") as file:
      keys = json.loads(file["sentence_to_index"][0])
      vectors = file[keys["The cat sat ."]][...]

As parquet, OUTPUT is a folder of Parquet files with a row for each sentence: source, line (from 0),
sentence, tokens, and vectors, a list with the vector of each token; with --all there are layer_0, layer_1
and so on in place of vectors. To read it: pyarrow.parquet.read_table("vectors.parquet").

As npy, OUTPUT is a folder with vectors.npy, (tokens, 1024), or (tokens, 3, 1024) with --all, for all
sentences one after the other; sentence i has the tokens from offsets[i] up to offsets[i + 1] in
offsets.npy, and its line is lines[i] in lines.npy; sentences.jsonl has its words. To read a part of it:
  vectors = numpy.load("vectors.npy/vectors.npy", mmap_mode="r")

Memory does not grow with INPUT, but for HDF5's sentence_to_index: about 200 bytes and the line itself for
each distinct line. --forget-sentences leaves it out. Disk: layers x tokens x width x 4 bytes (2 in float16);
hdf5 and npy need twice that while parts are merged at the end.

--resume may stand in every call: it begins where there is nothing to resume, and does nothing where OUTPUT is
complete. A run that was killed loses at most the part that it was at: 2,048 sentences, or 128 MiB of vectors.
The input and the settings must be the same, but for batches, keys, the device, the kernel and the engine;
vectors are the same to within rounding (1e-6). Standard input is read again from its beginning, and compared.
OUTPUT is replaced only by --overwrite, or if this command made it of the same input and settings.

--mix ARCHIVE writes what a task model learnt to make of the layers: their weighted sum, gamma included,
without dropout and projection. ARCHIVE is a model of this package's tasks, or one with an "elmo" embedder.
A mix was learnt for the biLM in its archive, so that this biLM is used, and no --options-file or
--weight-file may be given. If there are several mixes, such as ELMo's at the input and at the output,
--mix-name says which.

--engine ray embeds on --num-workers processes of this machine, or of the Ray cluster at --ray-address. INPUT
and OUTPUT must have the same paths on all nodes. A worker that dies costs time, no sentence.

Each sentence is embedded from zero states, so that its vectors do not depend on the others. --stateful
carries states from batch to batch, as AllenNLP 0.9 did: vectors then depend on order and --batch-size.
"""


@Subcommand.register("elmo")
class ElmoCommand(Subcommand):
    """Embeds text: `allennlp elmo INPUT OUTPUT (--all | --top | --average | --mix ARCHIVE)`."""

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
            help="sentences; - for standard input; also a folder or a quoted pattern of files",
        )
        subparser.add_argument(
            "output_file",
            metavar="OUTPUT",
            help="the file (hdf5) or folder (parquet, npy) to write",
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
            "--mix", metavar="ARCHIVE", help="the sum of layers that the model in ARCHIVE learnt"
        )
        add_options(subparser, ModelOptions, "states")
        add_options(subparser, InputOptions, "input")
        add_options(subparser, OutputOptions, "output")
        add_options(subparser, BatchOptions, "speed")
        add_options(subparser, EngineOptions, "several processes or machines")
        subparser.add_argument(
            "--file-friendly-logging",
            action="store_true",
            help="write progress in lines of their own, and slower, for logs in files",
        )
        add_debug_argument(subparser)
        subparser.set_defaults(func=_embed_from_args)
        return subparser


@dataclass(frozen=True)
class MixOptions:
    """Which mix of an archive is meant."""

    mix_name: Optional[str] = option(
        "which of ARCHIVE's mixes, such as input or output; needed only if it has several",
        None,
        metavar="NAME",
    )
    overrides: str = option("overrides of the config in ARCHIVE", "", short="-o", metavar="JSON")


@dataclass(frozen=True)
class ModelOptions:
    """
    The biLM, and what of its layers is written.

    # Parameters

    layers : `str`, optional
        `all`, `top` or `average`. Either this or `mix` is given.
    mix : `str`, optional
        An archive whose learnt mix and biLM to use.
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
        "has no effect, and had none in AllenNLP 0.9: words are read letter by letter", None
    )

    def __post_init__(self) -> None:
        if (self.layers is None) == (self.mix is None):
            raise ConfigurationError(
                f"layers is {self.layers} and mix is {self.mix}, expected one of them. Give all, top or "
                "average, or the archive of a mix."
            )
        if self.mix is None and self.mix_options != MixOptions():
            raise ConfigurationError(
                "--mix-name and --overrides are about an archive, and there is none. Give --mix ARCHIVE, or "
                "leave them out."
            )
        if self.mix is not None and self.files != BiLMFiles():
            raise ConfigurationError(
                f"--options-file or --weight-file is given with --mix {self.mix}, but the mix was learnt for "
                "the biLM in that archive, which is used. Leave the files out, or write layers with --all."
            )
        if self.vocab_path is not None:
            logger.warning("--vocab-path has no effect, as in AllenNLP 0.9. Leave it out.")

    def load(self) -> Tuple[ElmoEmbedder, LayerChoice]:
        """Load the biLM."""
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
    Embed the sentences of a run: what `allennlp elmo` does.

    # Raises

    `ConfigurationError` for files, options and sentences that are not as described; `OSError` if writing
    fails.
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
