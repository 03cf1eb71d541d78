#!/usr/bin/env bash
# One epoch of a biLM of this package on more text: a step of scripts/elmo_mini.sh and scripts/elmo_small.sh.
#
#   bash scripts/train_further.sh FROM TO TEXT RATE END
#
# FROM is a name, folder or archive, TO the folder of the run, TEXT files or globs, separated by commas. The learning
# rate rises to RATE in 200 batches and falls evenly to END. LM_VOCABULARY and LM_HELDOUT as in bilm_finetune.jsonnet.
set -euo pipefail

LM_START=$1 LM_TRAIN=$3 "${BIN:-.venv/bin}/allennlp" train training_configs/bilm_finetune.jsonnet -s "$2" \
    --include-package elmo_plugin \
    --overrides '{
        "model.precision": "bfloat16",
        "model.dropout": 0.0,
        "data_loader.rows": 128,
        "trainer.optimizer.lr": '"$4"',
        "trainer.learning_rate_scheduler": {
            "type": "polynomial_decay", "warmup_steps": 200, "power": 1, "end_learning_rate": '"$5"'
        }
    }'
