"""`allennlp elmo`: from sentences to their ELMo vectors."""

import argparse
import logging
from pathlib import Path
from typing import Any

from allennlp.commands.subcommand import Subcommand
from allennlp.common import logging as common_logging

from elmo_plugin.commands.bilm_arguments import add_device_arguments, add_file_arguments
from elmo_plugin.commands.text_embedding import DEFAULT_COLUMN, ENGINES, LOCAL, embed_text
from elmo_plugin.embedding.checked_sentences import TOKENIZERS
from elmo_plugin.embedding.embed_file import DEFAULT_BATCH_SIZE, DTYPES
from elmo_plugin.embedding.output.output_formats import FORMATS

logger = logging.getLogger(__name__)

_DESCRIPTION = """
Embed sentences with ELMo and write their vectors: as HDF5, laid out as by AllenNLP 0.9, as Parquet, or as
numpy arrays.

INPUT is UTF-8 text, one sentence on each line, tokens set apart by white space; plain or .gz, or - for
standard input; or a .parquet file with a column of sentences, or of lists of tokens. A file is checked to
its end before any work. OUTPUT appears when it is complete. Until then what is written is in OUTPUT.partial,
and an interrupted run is gone on with by --resume.
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
each distinct line. --forget-sentences leaves it out. Disk: layers x tokens x width x 4 bytes (2 in float16).

--resume may stand in every call: it begins where there is nothing to go on with, and does nothing where
OUTPUT is complete. A run that was killed loses at most the last 128 MiB of vectors. The input and the
settings must be the same, but for batches, the device and the kernel; what is embedded after the
interruption stands in other batches, which changes vectors by rounding (1e-6) only.

--mix ARCHIVE writes what a task model learnt to make of the layers: their weighted sum, gamma included,
without dropout and projection. ARCHIVE is a model of this package's tasks, or one with an "elmo" embedder.
A mix was learnt for the biLM in its archive, so that this biLM is used, and no --options-file or
--weight-file may be given. If there are several mixes, such as ELMo's at the input and at the output,
--mix-name says which.

--engine ray embeds on --num-workers processes of this machine, or of the Ray cluster at --ray-address. INPUT
may then be a folder or a quoted pattern of files too, better many than one, and OUTPUT is parquet. Inputs and
OUTPUT must have the same paths on all nodes. A worker that dies costs time, no sentence.

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
            help="sentences; - for standard input; with --engine ray also a folder or a pattern",
        )
        subparser.add_argument(
            "output_file",
            metavar="OUTPUT",
            help="the file (hdf5) or folder (parquet, npy) to write",
        )
        _add_layers(subparser)
        _add_model(subparser)
        _add_input(subparser)
        _add_output(subparser)
        _add_speed(subparser)
        _add_engine(subparser)
        subparser.set_defaults(func=_embed_from_args)
        return subparser


def _add_layers(subparser: argparse.ArgumentParser) -> None:
    layers = subparser.add_argument_group("what to write (one is required)")
    choices = layers.add_mutually_exclusive_group(required=True)
    choices.add_argument("--all", action="store_true", help="all layers")
    choices.add_argument("--top", action="store_true", help="the last layer")
    choices.add_argument("--average", action="store_true", help="the mean of all layers")
    choices.add_argument(
        "--mix", metavar="ARCHIVE", help="the sum of layers that the model in ARCHIVE learnt"
    )
    layers.add_argument(
        "--mix-name",
        metavar="NAME",
        help="which of ARCHIVE's mixes, such as input or output; needed only if it has several",
    )
    layers.add_argument(
        "--overrides", "-o", metavar="JSON", help="overrides of the config in ARCHIVE"
    )


def _add_model(subparser: argparse.ArgumentParser) -> None:
    model = subparser.add_argument_group("the biLM")
    add_file_arguments(model)
    model.add_argument(
        "--stateful",
        action="store_true",
        help="carry states from batch to batch, as AllenNLP 0.9 did; not with --batch-tokens",
    )
    model.add_argument(
        "--vocab-path",
        help="has no effect, and had none in AllenNLP 0.9: words are read letter by letter",
    )


def _add_input(subparser: argparse.ArgumentParser) -> None:
    source = subparser.add_argument_group("input")
    source.add_argument(
        "--tokenizer",
        choices=list(TOKENIZERS),
        default="whitespace",
        help="whitespace, for text in tokens; spacy, for other text: spaCy's rules for English "
        "(default = whitespace)",
    )
    source.add_argument(
        "--column",
        default=DEFAULT_COLUMN,
        help=f"of a Parquet file: what holds the sentences (default = {DEFAULT_COLUMN})",
    )
    source.add_argument(
        "--skip-blank",
        action="store_true",
        help="leave blank lines out; others keep their numbers (default: stop before any work)",
    )


def _add_output(subparser: argparse.ArgumentParser) -> None:
    output = subparser.add_argument_group("output")
    output.add_argument(
        "--format",
        choices=FORMATS,
        help="(default = by the ending of OUTPUT: .parquet, .npy, anything else is hdf5)",
    )
    output.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="type of the vectors in OUTPUT (default = float32)",
    )
    output.add_argument(
        "--forget-sentences", action="store_true", help="do not write sentence_to_index"
    )
    output.add_argument(
        "--use-sentence-keys",
        action="store_true",
        help="the lines themselves are the keys, and each must be unlike the others; no sentence_to_index. "
        "A slash in a line makes groups in OUTPUT: file[line] works, but listing keys shows groups. Takes "
        "100 bytes of memory for each line",
    )
    output.add_argument(
        "--overwrite",
        action="store_true",
        help="replace OUTPUT if it exists, and OUTPUT.partial (default: stop before any work)",
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted run, without losing or repeating a sentence; not with --stateful",
    )


def _add_speed(subparser: argparse.ArgumentParser) -> None:
    speed = subparser.add_argument_group("speed")
    speed.add_argument(
        "--batch-size",
        type=int,
        default=DEFAULT_BATCH_SIZE,
        help=f"sentences in a batch (default = {DEFAULT_BATCH_SIZE})",
    )
    speed.add_argument(
        "--batch-tokens",
        type=int,
        metavar="N",
        help="at most N tokens in a batch, padding included, so that long sentences take no more memory "
        "than short ones (default: as many as have vectors of 256 MiB)",
    )
    add_device_arguments(speed)
    speed.add_argument(
        "--file-friendly-logging",
        action="store_true",
        help="write progress in lines of their own, and slower, for logs in files",
    )


def _add_engine(subparser: argparse.ArgumentParser) -> None:
    engine = subparser.add_argument_group("several processes or machines")
    engine.add_argument(
        "--engine",
        choices=ENGINES,
        default=LOCAL,
        help="local: this process; ray: workers of Ray, see above (default = local)",
    )
    engine.add_argument(
        "--num-workers",
        type=int,
        metavar="N",
        help="processes that embed, each with its share of the cores (default = 1)",
    )
    engine.add_argument(
        "--num-gpus-per-worker",
        type=float,
        metavar="N",
        help="GPUs of each worker; a fraction to share one (default = 0)",
    )
    engine.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="of a Ray cluster, such as 10.0.0.1:6379, or auto on one of its nodes (default: start Ray here)",
    )


def _embed_from_args(args: argparse.Namespace) -> None:
    common_logging.FILE_FRIENDLY_LOGGING = args.file_friendly_logging
    if args.vocab_path is not None:
        logger.warning("--vocab-path has no effect, as in AllenNLP 0.9. Leave it out.")
    formats = [name for name in ("all", "top", "average") if getattr(args, name)]
    embedded = embed_text(
        input_file=args.input_file,
        output_file=args.output_file,
        output_format=formats[0] if formats else None,
        mix=args.mix,
        mix_name=args.mix_name,
        overrides=args.overrides or "",
        options_file=args.options_file,
        weight_file=args.weight_file,
        stateful=args.stateful,
        tokenizer=args.tokenizer,
        skip_blank=args.skip_blank,
        dtype=args.dtype,
        forget_sentences=args.forget_sentences,
        use_sentence_keys=args.use_sentence_keys,
        overwrite=args.overwrite,
        format=args.format,
        resume=args.resume,
        batch_size=args.batch_size,
        batch_tokens=args.batch_tokens,
        cuda_device=args.cuda_device,
        precision=args.precision,
        kernel=args.kernel,
        column=args.column,
        engine=args.engine,
        num_workers=args.num_workers,
        num_gpus_per_worker=args.num_gpus_per_worker,
        ray_address=args.ray_address,
    )
    output = Path(args.output_file)
    files = output.iterdir() if output.is_dir() else [output]
    size = sum(file.stat().st_size for file in files) / 1e6
    print(
        f"{output}: {embedded.num_sentences:,} sentences, {embedded.num_tokens:,} tokens, {size:,.1f} MB"
    )
