"""
`elmo export`: write the biLM of an archive as files that every ELMo reads, a task model without it, or a biLM
as a program.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional, Sequence

from elmo_plugin.arguments import Options, option, option_group
from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.program import SUFFIXES, export_program
from elmo_plugin.compat.environment import needing_allennlp
from elmo_plugin.embedding.elmo_embedder import BiLMFiles
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file
from elmo_plugin.files.text import read_text

DESCRIPTION = """\
examples:
  %(prog)s runs/bilm/model.tar.gz my_bilm --license cc-by-sa-4.0
  %(prog)s runs/ner/model.tar.gz my_tagger --task-model --dtype float16
  %(prog)s --model my_bilm my_bilm.onnx

Write the biLM in an archive as options.json and weights.hdf5, in the format of bilm-tf, which `elmo`
embedders and AllenNLP's own read. The archive is that of a pretrained biLM (then the softmax and
vocab.txt are written too) or of a task model with a fine-tuned biLM. With --task-model, write the task
model itself, as a folder that can be used in place of a model.tar.gz. If its frozen biLM is one of this
package, the folder has only the name of the biLM. A model card is written too, with the scores in
metrics.json beside the archive.

If FOLDER is the name of a file that ends in .pt2 or .onnx, write a biLM as a program that runs without this
package. --model then names the biLM, in place of ARCHIVE; no AllenNLP is needed.
"""

USAGE = "%(prog)s (ARCHIVE | --model NAME) FOLDER [options]"


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """The arguments of `export_model`, and the biLM of a program."""

    archive_file: Optional[str] = option(
        "model.tar.gz of a training run, its folder, or the name of a task model of this package",
        None,
        positional=True,
        nargs="?",
        metavar="ARCHIVE",
    )
    output_folder: str = option(
        "folder to write, made if it is missing; or file of a program, .pt2 or .onnx",
        positional=True,
        metavar="FOLDER",
    )
    task_model: bool = option("write the task model, not its biLM", False)
    dtype: str = option("data type of the weights", "float32", choices=("float32", "float16"))
    name: Optional[str] = option("name of the model in its card (default: that of FOLDER)", None)
    license: Optional[str] = option(
        "license of the weights, for the card: an identifier such as cc-by-sa-4.0",
        None,
        metavar="ID",
    )
    description: Optional[str] = option(
        "Markdown file for the head of the card: what the model does, data, limits",
        None,
        metavar="FILE",
    )
    scores: Sequence[str] = option(
        "scores for the card: a name of the data, and the file that `allennlp evaluate --output-file` wrote",
        (),
        metavar="DATA=FILE",
    )
    overwrite: bool = option("replace existing files", False)
    files: BiLMFiles = option_group("the biLM that is written as a program", BiLMFiles())

    @property
    def is_of_program(self) -> bool:
        """Whether the output is a program."""
        return Path(self.output_folder).suffix in SUFFIXES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_of_program:
            if self.archive_file is not None:
                raise ConfigurationError(
                    f"found ARCHIVE {self.archive_file}, expected --model for the program "
                    f"{self.output_folder}. An archive is exported to a folder first, which --model names."
                )
            self.files.check()
        elif self.files != BiLMFiles():
            raise ConfigurationError(
                f"found a biLM (--model or its files) and FOLDER {self.output_folder}, expected the name of "
                "a program, which ends in .pt2 or .onnx. Give such a name, or ARCHIVE in place of --model."
            )
        elif self.archive_file is None:
            raise ConfigurationError(
                f"found no ARCHIVE, only FOLDER {self.output_folder}, expected both. Give the archive first."
            )


def run(options: ExportOptions) -> None:
    """Write the files, and print their paths."""
    if options.is_of_program:
        _export_program(options)
        print(options.output_folder)
        return
    with needing_allennlp("export"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.pretraining.export import export_model
    arguments = {name: value for name, value in asdict(options).items() if name != "files"}
    if options.description is not None:
        arguments["description"] = read_text(options.description, "Markdown")
    print(*export_model(**arguments), sep="\n")


def _export_program(options: ExportOptions) -> None:
    file = options.output_folder
    used = ("output_folder", "overwrite", "files")
    if options != ExportOptions(**{name: getattr(options, name) for name in used}):
        raise ConfigurationError(
            f"{file} is the name of a program, expected no other option than --overwrite: a program is of "
            "float32 and has no card. Leave the others out, or name a folder."
        )
    check_output_file(file, options.overwrite, "FOLDER")
    export_program(BiLM.from_files(**options.files.arguments), file)
