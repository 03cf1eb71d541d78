"""`elmo pretrain`: make a biLM of one's own text, or adapt one to it, in one command."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional, Sequence

from elmo_plugin.arguments import Options, option
from elmo_plugin.compat.environment import needing_allennlp
from elmo_plugin.errors import ConfigurationError

USAGE = "%(prog)s TEXT... OUTPUT [options]"

DESCRIPTION = """\
examples:
  %(prog)s corpus/ my_elmo --size mini --hours 3
  %(prog)s --from elmo_small reviews.txt my_elmo --hours 1
  %(prog)s corpus/ my_elmo --size mini --hours 3 --resume     # after an interruption

Train a biLM, the language model behind ELMo, for your language or domain. The command counts the words of
the text, chooses the vocabulary, holds out sentences to measure on, measures the speed of this machine, and
prints a plan for the given time. Then it trains, and writes a folder that every command takes as --model.
With --from, it adapts an existing biLM.

OUTPUT has options.json, weights.hdf5 with the softmax, vocab.txt, and README.md, a card with the text, the
time and the perplexities. OUTPUT/training has a copy of the text, config.jsonnet (a config of
`allennlp train`), log.txt, and the run with its checkpoints and TensorBoard files. You can remove this folder
when you do not need it any more.

How much text? 10 million words give a useful biLM, in one to two hours on two cores. 1 million words are too
few. More text is better than more passes over the same text.
"""


SIZE, HOURS = "mini", 1.0


@dataclass(frozen=True)
class PretrainOptions(Options):
    """The text, the biLM and the time."""

    text: Sequence[str] = option(
        "UTF-8 text, plain or .gz, a tokenized sentence on each line; .parquet; folders and quoted patterns; "
        "-, standard input",
        positional=True,
        metavar="TEXT",
    )
    output: str = option("folder to write", positional=True, metavar="OUTPUT")
    size: Optional[str] = option(
        "mini: 2.7 million parameters, as elmo_mini; small: 11.9 million, as elmo_small; original: 93.6 "
        "million, as the paper's, for GPUs; or a config of pretraining, such as bilm_mini.jsonnet "
        f"(default: {SIZE})",
        None,
        metavar="SIZE",
    )
    from_: Optional[str] = option(
        "adapt this biLM instead of training a new one: its name, folder, .zip or training archive",
        None,
        metavar="MODEL",
    )
    hours: Optional[float] = option(
        f"approximate time of training (default: {HOURS:g}); it is shorter if there is little text",
        None,
        metavar="H",
    )
    epochs: Optional[int] = option(
        "number of times to read the text, in place of --hours", None, metavar="N", positive=True
    )
    heldout: Sequence[str] = option(
        "text that is held out (default: some of TEXT, at most 2,000 sentences)", (), metavar="TEXT"
    )
    tokenizer: str = option(
        "tokenizer of TEXT; spacy: split raw text by spaCy's rules for English",
        "whitespace",
        choices=("whitespace", "spacy"),
    )
    column: Optional[str] = option("Parquet column of sentences", None, metavar="NAME")
    license: Optional[str] = option(
        "license of the weights, for the card: an identifier such as cc-by-sa-4.0",
        None,
        metavar="ID",
    )
    resume: bool = option("continue an interrupted training, or start if there is none", False)
    overwrite: bool = option("replace what an earlier training wrote to OUTPUT", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hours is not None and not 0 < self.hours < float("inf"):
            raise ConfigurationError(f"--hours is {self.hours}, expected a positive number.")
        pairs = {
            "--hours and --epochs": self.hours is not None and self.epochs is not None,
            "--resume and --overwrite": self.resume and self.overwrite,
            "--from and --size": self.from_ is not None and self.size is not None,
        }
        for names, are_given in pairs.items():
            if are_given:
                raise ConfigurationError(f"{names} are given, expected one of them. Leave one out.")

    @property
    def chosen_size(self) -> str:
        """The size that was given, or the default."""
        return self.size or SIZE

    @property
    def chosen_hours(self) -> float:
        """The hours that were given, or the default."""
        return self.hours or HOURS

    def plan_arguments(self) -> Dict[str, Any]:
        """Return the arguments that a resumed training must share."""
        others = ("resume", "overwrite", "license", "output")
        values = {
            key.rstrip("_"): value for key, value in asdict(self).items() if key not in others
        }
        values.update(size=self.chosen_size, hours=self.chosen_hours)
        for key in ("text", "heldout"):  # with and without a slash at the end
            values[key] = [path.rstrip("/") or path for path in values[key] or ()]
        return json.loads(json.dumps(values))  # as they are read again: lists, not tuples


def run(options: PretrainOptions) -> None:
    """Train, and print what was made and what to try with it."""
    with needing_allennlp("pretrain"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.pretraining.command import pretrain

    pretrain(options)
