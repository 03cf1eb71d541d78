#!/usr/bin/env bash
# How elmo_plugin/pretrained/elmo_small was made, from elmo_mini: its card has the hours, RESULTS.md the perplexities.
#
#   bash scripts/elmo_small.sh DATA/lm    the same text as for scripts/elmo_mini.sh
#
# elmo_mini is made wider, with 30,000 words to predict, and reads on. Each step reads text that none before it has read,
# but for the last mix: as that of elmo_mini it has novels, and WikiText and WikiSplit several times.
set -euo pipefail

data=${1:?folder of the corpus}
runs=runs/small
heldout=$data/wikipedia/heldout.txt
allennlp=${ALLENNLP:-.venv/bin/allennlp}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$runs/text" "$runs/last"

# 45.6M words in 40 files: Wikipedia, conversations, and half of the novels.
(zcat "$data"/wikipedia/train-*.gz "$data"/spoken/train-*.gz; cat "$data"/train-000?[02468]-*.txt) |
    shuf --random-source=<(yes) | split -n r/40 -d --additional-suffix=.txt - "$runs/text/"
"$allennlp" elmo-vocab "$runs/text/*.txt" "$data"/wiki{text,split}/train.txt --max-size 30000 \
    --output "$runs/vocab.txt" --overwrite
export LM_VOCABULARY=$runs/vocab.txt

"$python" scripts/grow_bilm.py elmo_mini "$runs/grown" --vocabulary-file "$runs/vocab.txt" \
    --cell-size 1024 --projection-dim 256 --filters '[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]]'

train() { # from, to, text, learning rate at first and at the end: one epoch
    LM_START=$1 LM_TRAIN=$3 LM_HELDOUT=$heldout \
        "$allennlp" train training_configs/bilm_finetune.jsonnet -s "$2" --include-package elmo_plugin \
        --overrides '{
            "model.precision": "bfloat16",
            "model.dropout": 0.0,
            "data_loader.rows": 128,
            "trainer.optimizer.lr": '"$4"',
            "trainer.learning_rate_scheduler": {
                "type": "polynomial_decay", "warmup_steps": 200, "power": 1, "end_learning_rate": '"$5"'
            }
        }'
}

train "$runs/grown" "$runs/1" "$runs/text/0[0-3].txt" 0.002 0.001
train "$runs/1/model.tar.gz" "$runs/2" "$runs/text/04.txt" 0.0008 0.00005
# 2,336 batches. In the making it was a longer step, which was stopped after 2,500.
train "$runs/2/model.tar.gz" "$runs/3" "$runs/text/0[5-9].txt" 0.0015 0.001

(cat "$runs/text/13.txt" "$data"/train-000{03,09}-*.txt
    for _ in 1 2 3 4; do cat "$data/wikitext/train.txt"; done
    for _ in 1 2; do cat "$data/wikisplit/train.txt"; done) |
    shuf --random-source=<(yes) | split -n r/4 -d --additional-suffix=.txt - "$runs/last/"
train "$runs/3/model.tar.gz" "$runs/4" "$runs/last/*.txt" 0.001 0.00002
# Once more: text that is new, then the last mix. In the making this went on from the exported weights, in float16.
train "$runs/4/model.tar.gz" "$runs/5" "$runs/text/1[4-9].txt,$runs/text/2[0-6].txt" 0.0015 0.0008
train "$runs/5/model.tar.gz" "$runs/6" "$runs/last/*.txt" 0.001 0.00002

"$allennlp" elmo-export "$runs/6/model.tar.gz" "$runs/elmo_small" --dtype float16 --overwrite \
    --name elmo_small --license cc-by-sa-4.0
