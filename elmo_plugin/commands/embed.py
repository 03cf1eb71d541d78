"""`elmo embed`: embed sentences with ELMo and write their vectors."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from elmo_plugin.arguments import Options, option, option_group
from elmo_plugin.bilm.processor import checked_device
from elmo_plugin.compat.environment import needing_allennlp
from elmo_plugin.embedding.elmo_embedder import (
    BiLMFiles,
    DeviceOptions,
    ElmoEmbedder,
)
from elmo_plugin.embedding.engines import EngineOptions
from elmo_plugin.embedding.formats import OutputOptions
from elmo_plugin.embedding.layers import (
    LAYER_CHOICES,
    POOLS,
    LayerChoice,
    layer_choice,
    learned_mix,
)
from elmo_plugin.embedding.run import EmbeddingRun
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import InputOptions
from elmo_plugin.errors import ConfigurationError

logger = logging.getLogger(__name__)

USAGE = "%(prog)s INPUT OUTPUT (--all | --top | --average | --mix ARCHIVE) [--pool POOL] [options]"

DESCRIPTION = """\
examples:
  %(prog)s sentences.txt vectors.hdf5 --average --model elmo_mini
  zcat big.gz | %(prog)s - vectors.hdf5 --mix tagger/model.tar.gz --mix-name input
  %(prog)s "texts/*.gz" vectors.parquet --top --model my_bilm --resume  # repeat it until it is complete

Write a vector for each token, or with --pool for each sentence; with --all one for each layer. The biLM, a
pretrained language model, computes them. OUTPUT is
  hdf5     a file with a dataset for each sentence: (tokens, width), with --all (layers, tokens, width).
           Its key is the line number, from "0". sentence_to_index, a JSON string, maps lines to keys.
  npy      a folder: vectors.npy (all tokens, width), offsets.npy, lines.npy, sentences.jsonl
  parquet  a folder of Parquet files, with a row for each sentence
           Both number the lines from 1.
OUTPUT appears when it is complete. Until then, finished parts are in OUTPUT.partial, for --resume.
"""


@dataclass(frozen=True)
class EmbedOptions(Options):
    """What to embed, with which biLM, and what to write."""

    input_file: str = option(
        "UTF-8 text, plain or .gz, a tokenized sentence on each line; .parquet; -, standard input; for "
        "parquet OUTPUT also a folder or pattern",
        positional=True,
        metavar="INPUT",
    )
    output_file: str = option("file or folder to write", positional=True, metavar="OUTPUT")
    all: bool = option("write all layers", False)
    top: bool = option("write the last layer", False)
    average: bool = option("write the mean of all layers", False)
    mix: Optional[str] = option(
        "write the weighted sum that a task model learned, with its biLM",
        None,
        metavar="ARCHIVE",
    )
    mix_name: Optional[str] = option(
        "name of the weighted sum, such as input, if ARCHIVE has several", None, metavar="NAME"
    )
    overrides: Optional[Dict[str, Any]] = option(
        "changes to the config in ARCHIVE", None, short="-o", metavar="JSON"
    )
    pool: Optional[str] = option(
        "one vector for each sentence; first-last: the last states of both LSTMs",
        None,
        choices=POOLS,
    )
    stateful: bool = option("carry LSTM states from batch to batch, as AllenNLP 0.9 did", False)
    files: BiLMFiles = option_group("the biLM", BiLMFiles())
    device: DeviceOptions = option_group("device and precision", DeviceOptions())
    input: InputOptions = option_group("input", InputOptions())
    output: OutputOptions = option_group("output", OutputOptions())
    batches: BatchOptions = option_group("speed", BatchOptions())
    engine: EngineOptions = option_group("several processes or machines", EngineOptions())

    def __post_init__(self) -> None:
        super().__post_init__()
        num_choices = len(self.layers) + (self.mix is not None)
        if num_choices != 1:
            raise ConfigurationError(
                f"found {num_choices} of the options --all, --top, --average and --mix, expected one of "
                "them, which says what to write."
            )
        if self.mix is None and (self.mix_name or self.overrides):
            raise ConfigurationError(
                "--mix-name and --overrides are options of --mix, which is not given. Give --mix ARCHIVE, or "
                "leave them out."
            )
        if self.mix is None:
            self.files.check()
        elif self.files != BiLMFiles():
            raise ConfigurationError(
                f"--model or its files are given with --mix {self.mix}, but the mix was learned for the biLM "
                "in that archive. Leave them out, or write layers with --all."
            )

    @property
    def layers(self) -> List[str]:
        """The names of the given choices of layers."""
        return [name for name in LAYER_CHOICES if getattr(self, name)]


def run(options: EmbedOptions) -> None:
    """Embed the sentences, and print how many there were."""
    embedding_run = EmbeddingRun(
        options.input_file,
        options.output_file,
        options.input,
        options.output,
        options.batches,
        options.engine,
    )
    embedding_run.check_bilm(options.stateful, options.device.cuda_device)
    embedded = embedding_run.embed(*_load(options))
    output = Path(options.output_file)
    files = output.iterdir() if output.is_dir() else [output]
    size = sum(file.stat().st_size for file in files) / 1e6
    print(
        f"{output}: {embedded.num_sentences:,} sentences, {embedded.num_tokens:,} tokens, {size:,.1f} MB"
    )


def _load(options: EmbedOptions) -> Tuple[ElmoEmbedder, LayerChoice]:
    """Load the biLM, and return its embedder and the choice of layers."""
    if options.mix is None:
        embedder = ElmoEmbedder(
            **options.files.arguments, **asdict(options.device), stateful=options.stateful
        )
        return embedder, layer_choice(options.layers[0], options.pool)
    with needing_allennlp("--mix"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.compat.archives import opened_archive
        from elmo_plugin.modules.model_mixes import choose_mix
    archive = opened_archive(options.mix, options.overrides or "")
    chosen = choose_mix(archive.model, options.mix, options.mix_name)
    logger.info("Mixing layers with '%s' of %s.", chosen.name, options.mix)
    bilm = chosen.bilm.to(checked_device(options.device.cuda_device))
    frozen = bilm.freeze(precision=options.device.precision, kernel=options.device.kernel)
    embedder = ElmoEmbedder.from_bilm(frozen, options.stateful)
    return embedder, learned_mix(chosen.mix, chosen.name, options.pool)
