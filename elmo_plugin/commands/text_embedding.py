"""What `allennlp elmo` does, as a function."""

import logging
from os import PathLike
from typing import Any, Dict, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.commands.bilm_arguments import named_files
from elmo_plugin.embedding.archived_mix import choose_mix, frozen_copy
from elmo_plugin.embedding.checked_sentences import CheckedSentences
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.embed_file import (
    DEFAULT_BATCH_SIZE,
    EmbeddedFile,
    check_arguments,
    embed_file,
)
from elmo_plugin.embedding.layer_choice import LayerChoice, layer_choice, learnt_mix
from elmo_plugin.embedding.on_ray.embed_shards import embed_shards
from elmo_plugin.embedding.on_ray.ray_session import import_ray
from elmo_plugin.embedding.on_ray.shard_input import find_shards, is_parquet
from elmo_plugin.embedding.output.output_formats import check_output, format_of
from elmo_plugin.embedding.parquet_sentences import ParquetSentences
from elmo_plugin.embedding.sentence_file import SentenceFile
from elmo_plugin.pretraining.starting_point import opened_archive

DEFAULT_COLUMN = "sentence"
LOCAL, RAY = ENGINES = ("local", "ray")

logger = logging.getLogger(__name__)


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
    column: str = DEFAULT_COLUMN,
    engine: str = LOCAL,
    num_workers: Optional[int] = None,
    num_gpus_per_worker: Optional[float] = None,
    ray_address: Optional[str] = None,
) -> EmbeddedFile:
    """
    Embed the sentences of a file.

    # Parameters

    input_file : `str` or `PathLike`
        One sentence on each line, see `SentenceFile`; `-` for standard input; or a file that ends in
        `.parquet`, see `ParquetSentences`. For Ray: see `find_shards`.
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
    column : `str`, optional (default = `"sentence"`)
        Of Parquet files.
    engine : `str`, optional (default = `"local"`)
        `ray` runs `embed_shards`.
    num_workers, num_gpus_per_worker, ray_address
        For Ray, see `embed_shards`.

    # Raises

    `ConfigurationError` for files, arguments and sentences that are not as described; `OSError` if writing
    fails. `output_file` is then as it was before.
    """
    # What can be known at once, before a model is fetched or loaded.
    _check_arguments(output_format, mix, mix_name, overrides, options_file, weight_file)
    check_arguments(dtype, overwrite, resume, stateful)
    format = format_of(output_file, format)
    check_output(output_file, format, overwrite, resume)

    def new_embedder() -> Tuple[ElmoEmbedder, LayerChoice]:
        if mix is None:
            assert output_format is not None
            files = named_files(options_file, weight_file)
            embedder = ElmoEmbedder(
                **files,
                cuda_device=cuda_device,
                stateful=stateful,
                precision=precision,
                kernel=kernel,
            )
            return embedder, layer_choice(output_format)
        chosen = choose_mix(opened_archive(mix, overrides).model, str(mix), mix_name)
        logger.info("Mixing layers with '%s' of %s.", chosen.name, mix)
        bilm = frozen_copy(chosen.bilm, stateful, precision, kernel)
        return ElmoEmbedder.from_bilm(bilm, cuda_device), learnt_mix(chosen.mix, chosen.name)

    limits: Dict[str, Any] = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    if engine == RAY:
        _check_ray_arguments(format, stateful, cuda_device, forget_sentences, use_sentence_keys)
        import_ray()
        find_shards(input_file)
        embedder, layers = new_embedder()
        return embed_shards(
            input_file,
            output_file,
            embedder.elmo_bilm,
            layers,
            column=column,
            tokenizer=tokenizer,
            skip_blank=skip_blank,
            dtype=dtype,
            **limits,
            num_workers=1 if num_workers is None else num_workers,
            num_gpus_per_worker=num_gpus_per_worker or 0,
            ray_address=ray_address,
            overwrite=overwrite,
            resume=resume,
        )
    _check_local_arguments(engine, num_workers, num_gpus_per_worker, ray_address)
    with _source(input_file, column, tokenizer, skip_blank) as source:
        embedder, layers = new_embedder()
        return embed_file(
            embedder,
            source,
            output_file,
            layers,
            **limits,
            forget_sentences=forget_sentences,
            use_sentence_keys=use_sentence_keys,
            dtype=dtype,
            overwrite=overwrite,
            format=format,
            resume=resume,
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


def _check_ray_arguments(
    format: str,
    stateful: bool,
    cuda_device: int,
    forget_sentences: bool,
    use_sentence_keys: bool,
) -> None:
    if format != "parquet":
        raise ConfigurationError(
            f"--engine ray writes parquet, and the format is {format}. Give an OUTPUT that ends in .parquet, "
            "or --format parquet."
        )
    given = {
        "--stateful": stateful,
        "--cuda-device (--num-gpus-per-worker gives workers GPUs)": cuda_device >= 0,
        "--forget-sentences": forget_sentences,
        "--use-sentence-keys": use_sentence_keys,
    }
    for name, is_given in given.items():
        if is_given:
            raise ConfigurationError(f"{name} is not for --engine ray. Leave it out.")


def _check_local_arguments(
    engine: str,
    num_workers: Optional[int],
    num_gpus_per_worker: Optional[float],
    ray_address: Optional[str],
) -> None:
    if engine != LOCAL:
        raise ConfigurationError(f"engine is '{engine}', expected one of {', '.join(ENGINES)}.")
    given = {
        "--num-workers": num_workers,
        "--num-gpus-per-worker": num_gpus_per_worker,
        "--ray-address": ray_address,
    }
    for name, value in given.items():
        if value is not None:
            raise ConfigurationError(
                f"{name} is {value}, but the engine is {LOCAL}. Give --engine {RAY}, or leave it out."
            )


def _source(
    input_file: Union[str, PathLike], column: str, tokenizer: str, skip_blank: bool
) -> CheckedSentences:
    if is_parquet(input_file):
        return ParquetSentences(input_file, column, tokenizer, skip_blank)
    return SentenceFile(input_file, tokenizer, skip_blank)
