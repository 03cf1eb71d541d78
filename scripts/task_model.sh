#!/usr/bin/env bash
# How the task models in elmo_plugin/pretrained are made, from what `python scripts/data/make.py DATA` makes, on 2 CPU
# cores: elmo_ner_small in minutes, the others in up to an hour and a half. Programs are those of .venv/bin, or of the
# folder in the variable BIN.
#
#   bash scripts/task_model.sh elmo_ner_small DATA      or elmo_srl_small, elmo_coref_small, elmo_squad_small
#
# An interrupted training continues with the same command. Then: cp -r runs/elmo_ner_small/elmo_ner_small elmo_plugin/pretrained/
set -euo pipefail

name=${1:?name of the task model}
data=$(realpath "${2:?folder of the data}")
bin=${BIN:-.venv/bin}
run=runs/$name
# Paths of the data remain in the archive: of a link.
mkdir -p "$run/data"
scores=()

case $name in
elmo_ner_small)
    ln -sfn "$data/ner/wikigold" "$data/ner/uner_ewt" "$run/data/"
    # Classes of WNUT 2017 under the names of ours, and no entity where there is no such class.
    mkdir -p "$run/data/wnut17"
    for part in train dev test; do
        sed -E 's/-person$/-PER/; s/-location$/-LOC/; s/-(corporation|group)$/-ORG/; s/[BI]-(product|creative-work)$/O/' \
            "$data/ner/wnut17/$part.conll" >"$run/data/wnut17/$part.conll"
    done
    export NER_DATA=$run/data
    scores=("WikiGold, test=$run/data/wikigold/test.conll" "UniversalNER EWT, test=$run/data/uner_ewt/test.conll"
        "WNUT 2017, test=$run/data/wnut17/test.conll")
    ;;
elmo_srl_small)
    ln -sfn "$data/srl" "$run/data/"
    export SRL_DATA=$run/data/srl
    scores=("PropBank EWT, test=$run/data/srl/test.gold_conll")
    for genre in answers email newsgroup reviews weblog; do
        awk -v genre="ewt/$genre/" '/^#begin/ { of_genre = index($0, genre) } of_genre' \
            "$run/data/srl/test.gold_conll" >"$run/data/$genre.gold_conll"
        scores+=("$genre=$run/data/$genre.gold_conll")
    done
    ;;
elmo_coref_small)
    ln -sfn "$data/coref" "$run/data/"
    export COREF_DATA=$run/data/coref
    scores=("LitBank, test=$run/data/coref/test.gold_conll")
    ;;
elmo_squad_small)
    ln -sfn "$data/squad/official_dev" "$run/data/"
    export SQUAD_DATA=$run/data/official_dev
    scores=("9 articles not used for any choice=$run/data/official_dev/test-v1.1.json")
    ;;
*)
    echo "$name: expected elmo_ner_small, elmo_srl_small, elmo_coref_small or elmo_squad_small" >&2
    exit 2
    ;;
esac

if [ ! -e "$run/run/metrics.json" ]; then
    recover=()
    [ -e "$run/run" ] && recover=(--recover)
    ELMO=elmo_small "$bin/allennlp" train "training_configs/$name.jsonnet" -s "$run/run" "${recover[@]}" \
        --include-package elmo_plugin
fi
model=$run/$name
# The head of the card is written by hand; what follows is written again.
sed -e '1,/^# /d' -e '/^## /,$d' "elmo_plugin/pretrained/$name/README.md" | sed -e '1{/^$/d}' -e '${/^$/d}' > "$run/card.md"
export_model=("$bin/elmo" export "$run/run" "$model" --task-model --dtype float16 --overwrite
    --license cc-by-sa-4.0 --description "$run/card.md")
"${export_model[@]}"
# The exported model is measured, with its weights in float16.
measured=()
for number in "${!scores[@]}"; do
    "$bin/allennlp" evaluate "$model" "${scores[$number]#*=}" --output-file "$run/scores-$number.json" \
        --include-package elmo_plugin
    measured+=("${scores[$number]%%=*}=$run/scores-$number.json")
done
"$bin/python" scripts/examples_of_card.py "$model" "${scores[0]#*=}" >>"$run/card.md"
"${export_model[@]}" --scores "${measured[@]}"
