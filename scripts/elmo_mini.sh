#!/usr/bin/env bash
# How elmo_plugin/pretrained/elmo_mini was made: 2 CPU cores, about two hours and a half. docs/results/bilms.md has the
# figures.
#
#   bash scripts/elmo_mini.sh DATA/lm     train-*.txt and heldout.txt (novels), wikitext/ and wikisplit/ (train.txt and
#                                         heldout.txt each), wikipedia/ and spoken/ (train-*.txt.gz), from:
#                                         python scripts/data/make.py DATA
#
# First novels, then novels and a little Wikipedia, then today's English: Wikipedia, conversations and novels. The last step
# mixes in what the third one forgot: novels, and the markup of WikiText, whose <unk> is a word.
set -euo pipefail

data=${1:?folder of the corpus}
runs=runs/mini
wikipedia=("$data/wikitext/train.txt" "$data/wikisplit/train.txt")
bin=${BIN:-.venv/bin}
mkdir -p "$runs/mixed"

"$bin/elmo" vocab "$data/train-*.txt" "${wikipedia[@]}" --max-size 20000 --output "$runs/vocab.txt" --overwrite
export LM_VOCABULARY=$runs/vocab.txt

LM_TRAIN="$data/train-*.txt,${wikipedia[0]},${wikipedia[1]}" LM_HELDOUT=$data/heldout.txt \
    "$bin/allennlp" train training_configs/bilm_mini.jsonnet -s "$runs/first" --include-package elmo_plugin
"$bin/elmo" export "$runs/first" "$runs/start" --overwrite

cat "$data"/train-000?[02468]-*.txt "${wikipedia[@]}" "${wikipedia[@]}" |
    shuf --random-source=<(yes) | split -n r/10 -d --additional-suffix=.txt - "$runs/mixed/"
LM_START=$runs/start LM_TRAIN="$runs/mixed/*.txt" LM_HELDOUT=$data/wikitext/heldout.txt \
    "$bin/allennlp" train training_configs/bilm_finetune.jsonnet -s "$runs/second" --include-package elmo_plugin \
    --overrides '{
        "model.precision": "bfloat16",
        "data_loader.rows": 128,
        "trainer.optimizer.lr": 0.0015,
        "trainer.learning_rate_scheduler.warmup_steps": 100
    }'

# All of it is 46M words in 40 files, of which this much was read: 22.8M words, then 4.5M more.
mkdir -p "$runs/modern" "$runs/last"
(zcat "$data"/wikipedia/train-*.gz "$data"/spoken/train-*.gz; cat "$data"/train-000?[02468]-*.txt) |
    shuf --random-source=<(yes) | split -n r/40 -d --additional-suffix=.txt - "$runs/modern/"
export LM_HELDOUT=$data/wikitext/heldout.txt
bash scripts/train_further.sh "$runs/second/model.tar.gz" "$runs/third" "$runs/modern/[01]*.txt" 0.002 0.00002

(cat "$runs"/modern/2[0-3].txt "$data"/train-000{01,07,13,19,25}-*.txt
    for _ in 1 2 3 4; do cat "${wikipedia[0]}"; done
    for _ in 1 2; do cat "${wikipedia[1]}"; done) |
    shuf --random-source=<(yes) | split -n r/8 -d --additional-suffix=.txt - "$runs/last/"
bash scripts/train_further.sh "$runs/third/model.tar.gz" "$runs/fourth" "$runs/last/*.txt" 0.001 0.00002

"$bin/elmo" export "$runs/fourth/model.tar.gz" "$runs/elmo_mini" --dtype float16 --overwrite \
    --name elmo_mini --license cc-by-sa-4.0
