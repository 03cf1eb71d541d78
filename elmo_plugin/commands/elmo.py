"""`allennlp elmo`: from sentences to their ELMo vectors."""

import argparse
import logging
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Optional, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common import logging as common_logging
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.commands.bilm_arguments import (
    add_device_arguments,
    add_file_arguments,
    named_files,
)
from elmo_plugin.embedding.archived_mix import choose_mix, frozen_copy
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.embed_file import (
    DEFAULT_BATCH_SIZE,
    DTYPES,
    EmbeddedFile,
    check_arguments,
    embed_file,
)
from elmo_plugin.embedding.layer_choice import layer_choice, learnt_mix
from elmo_plugin.embedding.output_formats import FORMATS, check_output, format_of
from elmo_plugin.embedding.sentence_file import TOKENIZERS, SentenceFile
from elmo_plugin.pretraining.starting_point import opened_archive

logger = logging.getLogger(__name__)

_DESCRIPTION = """
Embed sentences with ELMo and write their vectors: as HDF5, laid out as by AllenNLP 0.9, as Parquet, or as
numpy arrays.

INPUT is UTF-8 text, one sentence on each line, tokens set apart by white space; plain or .gz, or - for
standard input. A file is checked to its end before any work. OUTPUT appears when it is complete. Until then
what is written is in OUTPUT.partial, and an interrupted run is gone on with by --resume.
"""

_EPILOG = """
examples:
  allennlp elmo sentences.txt vectors.hdf5 --average --options-file elmo_mini
  zcat big.txt.gz | allennlp elmo - vectors.hdf5 --mix tagger/model.tar.gz --mix-name input --dtype float16
  allennlp elmo big.txt.gz vectors.parquet --top --resume        # again, until it is done

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
            "input_file", metavar="INPUT", help="sentences; - for standard input"
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


def embed_text(
    input_file: Union[str, PathLike],
    output_file: Union[str, PathLike],
    output_format: Optional[str] = None,
    mix: Optional[Union[str, PathLike]] = None,
    mix_name: Optional[str] = None,
    overrides: Union[str, Dict[str, Any]] = "",
    options_file: Optional[Union[str, PathLike]] = None,
    weight_file: Optional[Union[str, PathLike]] = None,
    stateful: bool = False,
    tokenizer: str = "whitespace",
    skip_blank: bool = False,
    dtype: str = "float32",
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
    overwrite: bool = False,
    format: Optional[str] = None,
    resume: bool = False,
    batch_size: int = DEFAULT_BATCH_SIZE,
    batch_tokens: Optional[int] = None,
    cuda_device: int = -1,
    precision: str = "float32",
    kernel: str = AUTO,
) -> EmbeddedFile:
    """
    Embed the sentences of a file.

    # Parameters

    input_file : `str` or `PathLike`
        One sentence on each line, see `SentenceFile`; `-` for standard input.
    output_file : `str` or `PathLike`
        The file or folder to write.
    output_format : `str`, optional
        `all`, `top` or `average`. Either this or `mix` must be given.
    mix : `str` or `PathLike`, optional
        An archive whose learnt mix and biLM to use.
    mix_name, overrides : `str`, optional
        Which of the mixes in the archive, and overrides of its config.
    options_file, weight_file : `str` or `PathLike`, optional (default = the paper's model)
        The files of the biLM, without `mix`.
    stateful, cuda_device, precision, kernel
        See `ElmoEmbedder`.
    tokenizer, skip_blank
        See `SentenceFile`.
    dtype, forget_sentences, use_sentence_keys, overwrite, format, resume, batch_size, batch_tokens
        See `embed_file`.

    # Raises

    `ConfigurationError` for files, arguments and sentences that are not as described; `OSError` if writing
    fails. `output_file` is then as it was before.
    """
    # What can be known at once, before a model is fetched or loaded.
    _check_arguments(output_format, mix, mix_name, overrides, options_file, weight_file)
    check_arguments(dtype, overwrite, resume, stateful)
    check_output(output_file, format_of(output_file, format), overwrite, resume)
    with SentenceFile(input_file, tokenizer, skip_blank) as source:
        if mix is not None:
            chosen = choose_mix(opened_archive(mix, overrides).model, str(mix), mix_name)
            layers = learnt_mix(chosen.mix, chosen.name)
            bilm = frozen_copy(chosen.bilm, stateful, precision, kernel)
            embedder = ElmoEmbedder.from_bilm(bilm, cuda_device)
            logger.info("Mixing layers with '%s' of %s.", chosen.name, mix)
        else:
            assert output_format is not None
            layers = layer_choice(output_format)
            embedder = ElmoEmbedder(
                **named_files(options_file, weight_file),
                cuda_device=cuda_device,
                stateful=stateful,
                precision=precision,
                kernel=kernel,
            )
        return embed_file(
            embedder,
            source,
            output_file,
            layers,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            forget_sentences=forget_sentences,
            use_sentence_keys=use_sentence_keys,
            dtype=dtype,
            overwrite=overwrite,
            format=format,
            resume=resume,
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
    )
    output = Path(args.output_file)
    files = output.iterdir() if output.is_dir() else [output]
    size = sum(file.stat().st_size for file in files) / 1e6
    print(
        f"{output}: {embedded.num_sentences:,} sentences, {embedded.num_tokens:,} tokens, {size:,.1f} MB"
    )


def _check_arguments(
    output_format: Optional[str],
    mix: Optional[Union[str, PathLike]],
    mix_name: Optional[str],
    overrides: Union[str, Dict[str, Any]],
    options_file: Optional[Union[str, PathLike]],
    weight_file: Optional[Union[str, PathLike]],
) -> None:
    if (output_format is None) == (mix is None):
        raise ConfigurationError(
            f"output_format is {output_format} and mix is {mix}, expected one of them. Give all, top or "
            "average, or the archive of a mix."
        )
    if mix is None and (mix_name is not None or overrides):
        raise ConfigurationError(
            "--mix-name and --overrides are about an archive, and there is none. Give --mix ARCHIVE, or "
            "leave them out."
        )
    if mix is not None and (options_file is not None or weight_file is not None):
        raise ConfigurationError(
            f"--options-file or --weight-file is given with --mix {mix}, but the mix was learnt for the biLM "
            "in that archive, which is used. Leave the files out, or write layers with --all."
        )
