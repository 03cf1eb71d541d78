#!/usr/bin/env bash
# How elmo_plugin/pretrained/elmo_ner_mini is made: a few minutes on 2 CPU cores.
#
#   bash scripts/elmo_ner_mini.sh DATA/ner     wikigold/, uner_ewt/ and wnut17/, from: python scripts/data/make.py DATA
#
# Then: cp -r runs/ner_mini/elmo_ner_mini elmo_plugin/pretrained/
set -euo pipefail

data=$(realpath "${1:?folder of the named entities}")
runs=runs/ner_mini
allennlp=${ALLENNLP:-.venv/bin/allennlp}
model=$runs/elmo_ner_mini
mkdir -p "$runs/data/wnut17"

# Links, because the paths of the data remain in the archive.
ln -sfn "$data/wikigold" "$data/uner_ewt" "$runs/data/"
# Classes of WNUT 2017 under the names of ours, and no entity where there is no such class.
sed -E 's/-person$/-PER/; s/-location$/-LOC/; s/-(corporation|group)$/-ORG/; s/[BI]-(product|creative-work)$/O/' \
    "$data/wnut17/test.conll" >"$runs/data/wnut17/test.conll"

NER_DATA=$runs/data ELMO=elmo_mini \
    "$allennlp" train training_configs/ner_mini.jsonnet -s "$runs/run" --include-package elmo_plugin
export_model=("$allennlp" elmo-export "$runs/run/model.tar.gz" "$model" --task-model --dtype float16 --overwrite
    --license cc-by-sa-4.0 --description scripts/elmo_ner_mini.md)
"${export_model[@]}"
# The exported model is measured, with its weights in float16.
for source in wikigold uner_ewt wnut17; do
    "$allennlp" evaluate "$model" "$runs/data/$source/test.conll" --output-file "$runs/$source.json" \
        --include-package elmo_plugin
done
"${export_model[@]}" --scores "WikiGold, test=$runs/wikigold.json" "UniversalNER EWT, test=$runs/uner_ewt.json" \
    "WNUT 2017, test=$runs/wnut17.json"
