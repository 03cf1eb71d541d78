"""Train an ELMo tagger on real text, tag three sentences, and say what to try next (`make demo`)."""

import json
import os
from pathlib import Path

# Progress bars and results, without AllenNLP's log.
os.environ.setdefault("ALLENNLP_LOG_LEVEL", "ERROR")

from allennlp.commands.train import train_model_from_file

import elmo_plugin.plugin  # noqa: F401  (registers what the config names)
from elmo_plugin import load_predictor

SAMPLE = Path("fixtures/ner/wikigold")
CONFIG = SAMPLE / "experiment.jsonnet"
SENTENCES = SAMPLE / "sentences.jsonl"
RUN = Path("runs/demo")


def main() -> None:
    print(f"Training a tagger with ELMo at its input: {CONFIG} -> {RUN}\n", flush=True)
    train_model_from_file(CONFIG, RUN, force=True)
    metrics = json.loads((RUN / "metrics.json").read_text())

    archive_file = RUN / "model.tar.gz"
    predictor = load_predictor(archive_file)
    print(
        f"\nHeld-out sentences ({SAMPLE / 'test.conll'}), with the best of {metrics['epoch'] + 1} epochs:"
    )
    for name in ("precision", "recall", "f1"):
        print(f"  {name:9} {100 * metrics[f'test_{name}']:5.1f}")
    print("\nThree sentences that it has not seen, tagged:")
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        print(f"  {predictor.predict_json(json.loads(line))['tagged']}")
    print(
        f"\nThe trained model is {archive_file}; it needs no other file. Try next:\n"
        f"  .venv/bin/allennlp predict {archive_file} {SENTENCES}\n"
        f"  .venv/bin/allennlp evaluate {archive_file} {SAMPLE / 'test.conll'}\n"
        "In the browser, with sentences of your own:\n"
        f"  .venv/bin/elmo serve {archive_file}\n"
        "ELMo here is elmo_mini, which comes with this package. RESULTS.md has what it gains."
    )


if __name__ == "__main__":
    main()
