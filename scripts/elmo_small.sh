#!/usr/bin/env bash
# How elmo_plugin/pretrained/elmo_small was made, from elmo_mini: its card has the hours, docs/results/bilms.md the
# perplexities.
#
#   bash scripts/elmo_small.sh DATA/lm    the same text as for scripts/elmo_mini.sh
#
# elmo_mini is made wider, with 30,000 words to predict, and trained further: three times text that the wider model has
# not read, and then a mix at a falling rate, which has novels and WikiText's <unk> too.
set -euo pipefail

data=${1:?folder of the corpus}
runs=runs/small
bin=${BIN:-.venv/bin}
mkdir -p "$runs/text"

# 46.2M words in 40 files: Wikipedia, conversations, and half of the novels.
(zcat "$data"/wikipedia/train-*.gz "$data"/spoken/train-*.gz; cat "$data"/train-000?[02468]-*.txt) |
    shuf --random-source=<(yes) | split -n r/40 -d --additional-suffix=.txt - "$runs/text/"
"$bin/elmo" vocab "$runs/text/*.txt" "$data"/wiki{text,split}/train.txt --max-size 30000 \
    --output "$runs/vocab.txt" --overwrite
export LM_VOCABULARY=$runs/vocab.txt LM_HELDOUT=$data/wikipedia/heldout.txt

"$bin/python" scripts/grow_bilm.py elmo_mini "$runs/grown" --vocabulary-file "$runs/vocab.txt" \
    --cell-size 1024 --projection-dim 256 --filters '[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]]'

# Text mixed with novels, and with WikiText four times and WikiSplit twice.
mix() { # folder, files of text
    mkdir -p "$runs/$1"
    (cat "${@:2}" "$data"/train-000{03,09}-*.txt
        for _ in 1 2 3 4; do cat "$data/wikitext/train.txt"; done
        for _ in 1 2; do cat "$data/wikisplit/train.txt"; done) |
        shuf --random-source=<(yes) | split -n r/8 -d --additional-suffix=.txt - "$runs/$1/"
}
train_further() { bash scripts/train_further.sh "$@"; }

train_further "$runs/grown" "$runs/1" "$runs/text/0[0-3].txt" 0.002 0.001
train_further "$runs/1/model.tar.gz" "$runs/2" "$runs/text/04.txt" 0.0008 0.00005
# 2,336 batches. When elmo_small was made, it was a longer step, which was stopped after 2,500.
train_further "$runs/2/model.tar.gz" "$runs/3" "$runs/text/0[5-9].txt" 0.0015 0.001
mix first "$runs/text/13.txt"
train_further "$runs/3/model.tar.gz" "$runs/4" "$runs/first/*.txt" 0.001 0.00002
# Twice more: text that is new, then a mix. When elmo_small was made, steps 5 and 7 began from the exported weights, in
# float16.
train_further "$runs/4/model.tar.gz" "$runs/5" "$runs/text/1[4-9].txt,$runs/text/2[0-6].txt" 0.0015 0.0008
train_further "$runs/5/model.tar.gz" "$runs/6" "$runs/first/*.txt" 0.001 0.00002
train_further "$runs/6/model.tar.gz" "$runs/7" "$runs/text/1[0-2].txt,$runs/text/2[7-9].txt,$runs/text/3[0-5].txt" 0.0015 0.0008
mix last "$runs"/text/{36,37,38,39,13}.txt
train_further "$runs/7/model.tar.gz" "$runs/8" "$runs/last/*.txt" 0.0008 0.00002

"$bin/elmo" export "$runs/8/model.tar.gz" "$runs/elmo_small" --dtype float16 --overwrite \
    --name elmo_small --license cc-by-sa-4.0
