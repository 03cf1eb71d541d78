"""
A contender of alternatives.py in a separate process: builds one encoder with random weights, embeds batches
of sentences, and prints a line of JSON with what it took. Its argument is a JSON object, see `main`.
"""

import importlib
import json
import resource
import statistics
import sys
import timeit
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

Batch = List[List[str]]

# Imported before memory is first read: what a process needs without any model.
MODULES = {
    "elmo_plugin": ["torch", "elmo_plugin.modules.elmo"],
    "allennlp": ["allennlp.modules.elmo"],
    "transformers": [
        "torch",
        "transformers.models.bert.modeling_bert",
        "transformers.models.distilbert.modeling_distilbert",
    ],
    "model2vec": ["numpy", "tokenizers", "model2vec"],
}

# Without what is BERT-base's or DistilBERT's own default.
SHAPES: Dict[str, Dict[str, Any]] = {
    "BERT-base": {},
    "DistilBERT": {},
    "MiniLM": {
        "num_hidden_layers": 6,
        "hidden_size": 384,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    },
}
STATIC_DIM = 256


class Encoder(NamedTuple):
    """What embeds a batch, from words to vectors; its number of parameters; what forgets words it has met."""

    embed: Callable[[Batch], Any]
    num_parameters: int
    forget_words: Callable[[], None] = lambda: None


def elmo_encoder(settings: Dict[str, Any]) -> Encoder:
    """Our `Elmo`, or AllenNLP's."""
    import torch

    is_ours = settings["library"] == "elmo_plugin"
    library = importlib.import_module("elmo_plugin" if is_ours else "allennlp.modules.elmo")
    options = {"precision": settings["precision"]} if is_ours else {}
    elmo = library.Elmo(*settings["files"], 1, dropout=0.0, **options).eval()

    @torch.no_grad()
    def embed(batch: Batch) -> Any:
        return elmo(library.batch_to_ids(batch))

    if is_ours:
        assert elmo.snapshot.precision == settings["precision"], "it runs in another precision"
        return Encoder(embed, count(elmo), lambda: elmo.snapshot.word_vectors.clear())
    return Encoder(embed, count(elmo))


def transformers_encoder(settings: Dict[str, Any]) -> Encoder:
    """The last layer of a model of transformers, for all pieces of all words."""
    import torch
    from transformers import AutoModel, BertConfig, DistilBertConfig, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=settings["tokenizer"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
    config_class = DistilBertConfig if settings["shape"] == "DistilBERT" else BertConfig
    dtype = torch.bfloat16 if settings["precision"] == "bfloat16" else torch.float32
    config = config_class(**SHAPES[settings["shape"]])
    model = AutoModel.from_config(config, torch_dtype=dtype).eval()
    num_parameters = count(model)
    if settings["precision"] == "int8":
        linear = {torch.nn.Linear}
        model = torch.ao.quantization.quantize_dynamic(model, linear, torch.qint8, inplace=True)

    @torch.no_grad()
    def embed(batch: Batch) -> Any:
        inputs = tokenizer(
            batch,
            is_split_into_words=True,
            padding=True,
            truncation=True,
            max_length=512,
            return_token_type_ids=False,
            return_tensors="pt",
        )
        return model(**inputs).last_hidden_state

    return Encoder(embed, num_parameters)


def model2vec_encoder(settings: Dict[str, Any]) -> Encoder:
    """A static vector for each piece of each word."""
    import numpy
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(settings["tokenizer"])
    vectors = numpy.random.default_rng(0).random(
        (tokenizer.get_vocab_size(), STATIC_DIM), "float32"
    )
    model = StaticModel(vectors, tokenizer)

    def embed(batch: Batch) -> Any:
        return model.encode_as_sequence([" ".join(words) for words in batch])

    return Encoder(embed, vectors.size)


ENCODERS = {
    "elmo_plugin": elmo_encoder,
    "allennlp": elmo_encoder,
    "transformers": transformers_encoder,
    "model2vec": model2vec_encoder,
}


def count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def peak_memory() -> float:
    """Return the largest memory that this process has had, in MiB."""
    # Not from `resource` on Linux, which also counts the memory of the process that started this one.
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(settings: Dict[str, Any]) -> Dict[str, float]:
    """
    Embed all batches once untimed, and then a number of times.

    # Parameters

    settings : `Dict[str, Any]`
        `library` (a key of `ENCODERS`), `precision`, `files` (options and weights of a biLM), `shape` (a key
        of `SHAPES`), `tokenizer` (a file), `batches` (a JSON file of batches), `repetitions`, `threads`.
    """
    for name in MODULES[settings["library"]]:
        importlib.import_module(name)
    libraries = peak_memory()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(settings["threads"])
    encoder = ENCODERS[settings["library"]](settings)
    batches = json.loads(Path(settings["batches"]).read_text(encoding="utf-8"))

    def run() -> None:
        encoder.forget_words()
        for batch in batches:
            encoder.embed(batch)

    run()
    seconds = timeit.repeat(run, number=1, repeat=settings["repetitions"])
    return {
        "parameters": encoder.num_parameters,
        "libraries": libraries,
        "peak": peak_memory(),
        "seconds": statistics.median(seconds),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
