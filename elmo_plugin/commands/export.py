"""
`elmo export`: write the biLM of an archive as files that every ELMo reads, a task model without it, or a biLM
as a program.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional, Sequence

from elmo_plugin.arguments import option
from elmo_plugin.commands.main import needing_allennlp
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file

PROGRAM_SUFFIXES = (".pt2", ".onnx")

DESCRIPTION = """\
examples:
  %(prog)s runs/bilm/model.tar.gz my_bilm --license cc-by-sa-4.0
  %(prog)s runs/ner/model.tar.gz my_tagger --task-model --dtype float16
  %(prog)s my_bilm my_bilm.onnx

Write the biLM in an archive as options.json and weights.hdf5, in the format of bilm-tf, which `elmo`
embedders and AllenNLP's own read. The archive is that of a pretrained biLM (then the softmax and
vocab.txt are written too) or of a task model with a fine-tuned biLM. With --task-model, write the task
model itself, as a folder that can be used in place of a model.tar.gz. A frozen biLM that comes with this
package is left out of it, and found by its name. A model card is written too; it has the scores in
metrics.json beside the archive.

If FOLDER is the name of a file that ends in .pt2 or .onnx, write a biLM as a program that runs without this
package. ARCHIVE is then elmo_mini, a folder that `elmo export` wrote, or a .zip; no AllenNLP is needed.
"""


@dataclass(frozen=True)
class ExportOptions:
    """The arguments of `export_model`."""

    archive_file: str = option(
        "model.tar.gz, a training folder, or the name of a task model of this package",
        positional=True,
        metavar="ARCHIVE",
    )
    output_folder: str = option(
        "folder to write, made if it is missing; or file of a program, .pt2 or .onnx",
        positional=True,
        metavar="FOLDER",
    )
    task_model: bool = option("write the task model, not its biLM", False)
    dtype: str = option("data type of the weights", "float32", choices=("float32", "float16"))
    name: Optional[str] = option("of the model in its card (default: that of FOLDER)", None)
    license: Optional[str] = option(
        "of the weights, for the card: an identifier such as cc-by-sa-4.0", None, metavar="ID"
    )
    description: Optional[str] = option(
        "Markdown for the head of the card: what it does, data, limits", None, metavar="FILE"
    )
    scores: Sequence[str] = option(
        "for the card: name of data, and what `allennlp evaluate --output-file` wrote",
        (),
        metavar="DATA=FILE",
    )
    overwrite: bool = option("replace existing files", False)


OPTIONS = ExportOptions


def run(options: ExportOptions) -> None:
    """Write the files, and print their paths."""
    if Path(options.output_folder).suffix in PROGRAM_SUFFIXES:
        _export_program(options)
        print(options.output_folder)
        return
    with needing_allennlp("export"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.pretraining.export import export_model
    print(*export_model(**asdict(options)), sep="\n")


def _export_program(options: ExportOptions) -> None:
    from elmo_plugin.bilm import BiLM
    from elmo_plugin.bilm.model_files import names_both_files
    from elmo_plugin.bilm.program import export_program

    file = options.output_folder
    others = ExportOptions(options.archive_file, file, overwrite=options.overwrite)
    if options != others:
        raise ConfigurationError(
            f"{file} is the name of a program, expected no other option than --overwrite: a program is of "
            "float32 and has no card. Leave the others out, or name a folder."
        )
    check_output_file(file, options.overwrite, "FOLDER")
    if not names_both_files(options.archive_file):
        raise ConfigurationError(
            f"{options.archive_file}: expected elmo_mini, a folder that `elmo export` wrote, or a .zip, for "
            f"the program {file}. Export an archive to a folder first."
        )
    export_program(BiLM.from_files(options.archive_file), file)
