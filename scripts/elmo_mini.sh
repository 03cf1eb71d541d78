#!/usr/bin/env bash
# How elmo_plugin/pretrained/elmo_mini was made: 2 CPU cores, about an hour and a half. RESULTS.md has the figures.
#
#   bash scripts/elmo_mini.sh DATA/lm     train-*.txt and heldout.txt (novels), wikitext/ and wikisplit/ (train.txt and
#                                         heldout.txt each), from: python scripts/data/make.py DATA
#
# First one epoch of all text, then the nearer domain of most tasks: half of the novels, and Wikipedia twice, mixed.
set -euo pipefail

data=${1:?folder of the corpus}
runs=runs/mini
wikipedia=("$data/wikitext/train.txt" "$data/wikisplit/train.txt")
allennlp=${ALLENNLP:-.venv/bin/allennlp}
mkdir -p "$runs/mixed"

"$allennlp" elmo-vocab "$data/train-*.txt" "${wikipedia[@]}" --max-size 20000 --output "$runs/vocab.txt" --overwrite
export LM_VOCABULARY=$runs/vocab.txt

LM_TRAIN="$data/train-*.txt,${wikipedia[0]},${wikipedia[1]}" LM_HELDOUT=$data/heldout.txt \
    "$allennlp" train training_configs/bilm_mini.jsonnet -s "$runs/first" --include-package elmo_plugin
"$allennlp" elmo-export "$runs/first" "$runs/start" --overwrite

cat "$data"/train-000?[02468]-*.txt "${wikipedia[@]}" "${wikipedia[@]}" |
    shuf --random-source=<(yes) | split -n r/10 -d --additional-suffix=.txt - "$runs/mixed/"
LM_START=$runs/start LM_TRAIN="$runs/mixed/*.txt" LM_HELDOUT=${wikipedia[0]/train/heldout} \
    "$allennlp" train training_configs/bilm_finetune.jsonnet -s "$runs/second" --include-package elmo_plugin \
    --overrides '{
        "model.precision": "bfloat16",
        "data_loader.rows": 128,
        "trainer.optimizer.lr": 0.0015,
        "trainer.learning_rate_scheduler.warmup_steps": 100
    }'
"$allennlp" elmo-export "$runs/second/model.tar.gz" "$runs/elmo_mini" --dtype float16 --overwrite \
    --name elmo_mini --license cc-by-sa-4.0
