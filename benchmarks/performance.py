"""
Measure this machine and write the tables of PERFORMANCE.md for it: performance.md in the folder of --output,
with each table also as CSV and JSON. Send it in an issue, if you like.

Sections:
  inference     Our frozen ELMo beside allennlp.modules.elmo.Elmo: batches, single sentences, a file, and a
                fine-tuning step.
  layers        Our LSTM layers alone, as a share of what torch.mm reaches here.
  training      A training step beside AllenNLP's ElmoLstm and torch's nn.LSTM.
  alternatives  ELMo beside BERT, DistilBERT, a small MiniLM and a static embedding: words per second and
                memory, each in a process of its own.
  precision     How far float32, bfloat16 and int8 are from float32 on the reference kernel.
  memory        Seconds to load a biLM, and memory of one and of two processes.

In the first three sections contenders take turns in one process, so that what slows the machine for a while
slows all; before anything is timed, outputs must agree. Even so, run nothing else meanwhile. All sections
take about an hour and 8 GB of memory on two cores, with --quick about ten minutes.

Progress goes to stderr. Each table is kept as soon as it is measured: if a section fails the others follow,
and if the command is interrupted, --sections measures the rest into the same folder.

    python benchmarks/performance.py --text DATA/lm/wikitext/heldout.txt --quick
    python benchmarks/performance.py --text DATA/lm/wikitext/heldout.txt --sections inference --bilm elmo_mini
"""

import argparse
import shlex
import sys
import traceback
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

try:
    import matplotlib  # noqa: F401
    import pandas
except ImportError as missing:
    sys.exit(f'{missing}. The benchmarks need it: `pip install "elmo_plugin[report]"`.')

import alternatives
import inference
import memory
import precision_error
import torch
import training
from measurement import (
    SECTIONS,
    Options,
    Sentence,
    check_bilms,
    machine_facts,
    markdown,
    read_sentences,
)

from elmo_plugin.arguments import add_options, command_arguments, options_from
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.report.tables import (
    Part,
    ReportTable,
    read_table,
    without_machine_paths,
    write_report,
)

PARTS: Dict[str, Callable[[Options, List[Sentence]], Iterator[Tuple[str, Part]]]] = {
    "inference": inference.inference_parts,
    "layers": inference.layer_parts,
    "training": training.training_parts,
    "alternatives": alternatives.alternatives_parts,
    "precision": precision_error.precision_parts,
    "memory": memory.memory_parts,
}


def measure(options: Options, sentences: List[Sentence]) -> Dict[str, str]:
    """Measure each section, write its tables, and return the errors of those that failed."""
    folder = Path(options.output)
    facts = machine_facts(options)
    check_same_machine(folder, facts)
    folder.mkdir(parents=True, exist_ok=True)
    failures: Dict[str, str] = {}
    for section in sorted(options.sections, key=SECTIONS.index):
        print(f"{section} ...", file=sys.stderr)
        # The command that repeats this section alone.
        command = command_arguments(replace(options, sections=[section], output=Options.output))
        settings = {
            "section": section,
            "command": shlex.join(["python", "benchmarks/performance.py", *command]),
            "machine": facts,
        }
        try:
            for name, part in PARTS[section](options, sentences):
                settings["date"] = datetime.now(timezone.utc).date().isoformat()
                write_report(folder, {name: part}, settings)
                write_page(folder, facts, failures)
        except Exception as error:  # of any kind: the next section may well run
            traceback.print_exc()
            failures[section] = f"{type(error).__name__}: {error}"
            write_page(folder, facts, failures)
    return failures


def tables_in(folder: Path) -> List[ReportTable]:
    """Return the tables of this command in a folder, in the order of sections."""
    tables = [read_table(path) for path in sorted(folder.glob("*.json"))]
    ours = [table for table in tables if table.settings.get("section") in SECTIONS]
    return sorted(ours, key=lambda table: SECTIONS.index(table.settings["section"]))


def check_same_machine(folder: Path, facts: Dict[str, str]) -> None:
    """Raise an error if a folder has tables that were measured elsewhere, or with something else."""
    for table in tables_in(folder):
        if table.settings["machine"] != facts:
            raise ConfigurationError(
                f"--output: {folder} has tables of {table.settings['machine']}, expected those of this "
                f"machine, {facts}. Name another folder."
            )


def write_page(folder: Path, facts: Dict[str, str], failures: Dict[str, str]) -> None:
    """Write all tables of a folder as one page of Markdown."""
    tables = tables_in(folder)
    dates = sorted({table.settings["date"] for table in tables})
    facts = {**facts, "date": " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]]))}
    page = [
        "# Performance of elmo_plugin\n",
        *(f"- {key}: {value}" for key, value in facts.items()),
    ]
    for table in tables:
        frame = pandas.DataFrame(table.rows, columns=table.columns, dtype=object)
        page += [f"\n## {table.title}\n", f"    {table.settings['command']}\n", markdown(frame)]
        page += [f"\n{note}" for note in table.notes]
        if (folder / f"{table.name}.svg").exists():
            page.append(f"\n![{table.title}]({table.name}.svg)")
    page += [f"\n## {section}: not measured\n\n{error}" for section, error in failures.items()]
    with replaced_file(folder / "performance.md") as partial_file:
        text = without_machine_paths("\n".join(page))
        partial_file.write_text(text + "\n", encoding="utf-8", newline="")


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, Options, title=None)
    arguments = parser.parse_args(argv)
    try:
        options = options_from(Options, arguments)
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        check_bilms(options.bilm)
        sentences = read_sentences(options.text)
        failures = measure(options, sentences)
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(f"Interrupted. What was measured is in {options.output}.")
    print(Path(options.output, "performance.md").read_text(encoding="utf-8"))
    if failures:
        sys.exit(f"Not measured: {', '.join(failures)}; see above.")


if __name__ == "__main__":
    main()
