#!/usr/bin/env bash
# Measure what RESULTS.md shows. Finished runs are kept in runs/results, so the same command resumes after an interruption.
#
#   bash scripts/results.sh DATA                  everything: days on 2 cores
#   bash scripts/results.sh DATA tasks layers     these steps alone, of: static adapted tasks layers placement shares weights senses pos
#
# DATA is made by `python scripts/data/make.py DATA`. The step `static` needs gensim. Programs are those of .venv/bin, or of
# the folder in the variable BIN.
set -euo pipefail
shopt -s extglob

data=${1:?folder of the data}
shift
all_steps="static adapted tasks layers placement shares weights senses pos"
runs=runs/results
vectors=$runs/static # of both biLMs
mkdir -p "$runs"
bin=${BIN:-.venv/bin}

export ELMO=elmo_mini NER_DATA=$data/ner/wikigold SST_DATA=$data/sst SRL_DATA=$data/srl SNLI_DATA=$data/snli COREF_DATA=$data/coref \
    SQUAD_DATA=$runs/squad

report() { "$bin/elmo" report "$@" --output "$runs"; }
# report, task, seeds, options; two runs at a time, each on one thread
on_task() { report "$1" "training_configs/$2_small.jsonnet" --jobs 2 --seeds $3 "${@:4}"; }
# With each biLM. elmo_mini's share runs with the tasks.
for_both() {
    "$@"
    ELMO=elmo_small runs=$runs/elmo_small "$@"
}
on_small_tasks() { for task in ner sst srl snli; do on_task "$1" $task "1 2 3" --word-vectors "$vectors.txt"; done; }

# Word vectors of the text that elmo_small has read: in lower case, as the words of most tasks; as wide as these and
# one of the biLMs together; and as written, for the tasks whose words are.
static() {
    train() {
        # Once: other vectors, as of a second training, are other data, with which no finished run goes on.
        [ -e "$1" ] || "$bin/python" scripts/word_vectors.py "$1" "$data/lm/wikipedia/train-*.txt.gz" \
            "$data/lm/spoken/train-*.txt.gz" "$data/lm/train-000?[02468]-*.txt" "$data/lm/wiki*t/train.txt" "${@:2}"
    }
    train "$vectors.txt"
    train "${vectors}512.txt" --dim 512
    train "${vectors}768.txt" --dim 768
    train "${vectors}_cased.txt" --cased
}

# The sentences that the reader of a task reads: task_text READER FILE [ARGUMENTS OF THE READER, in JSON].
task_text() {
    "$bin/python" - "$@" <<'SCRIPT'
import json
import sys

import elmo_plugin.plugin
from allennlp.data import DatasetReader
from allennlp.data.fields import TextField

arguments = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
for instance in DatasetReader.by_name(sys.argv[1])(**arguments).read(sys.argv[2]):
    for field in instance.fields.values():
        if isinstance(field, TextField):
            print(*(token.text for token in field.tokens if token.text.strip()))
SCRIPT
}

# elmo_mini after an epoch on the text of a task, without its labels.
adapted() {
    mkdir -p "$runs/texts"
    for part in train dev; do
        task_text elmo_ner "$data/ner/wikigold/$part.conll" > "$runs/texts/ner_$part.txt"
        task_text elmo_srl "$data/srl/$part.gold_conll" '{"with_all_sentences": true}' > "$runs/texts/srl_$part.txt"
        task_text elmo_sst "$data/sst/$part.txt" > "$runs/texts/sst_$part.txt"
        task_text elmo_snli "$data/snli/$part.jsonl" > "$runs/texts/snli_$part.txt"
    done
    report perplexity --model elmo_mini --jobs 2 --seeds 1 --text ner "$runs"/texts/ner_{train,dev}.txt --text srl "$runs"/texts/srl_{train,dev}.txt \
        --text sst "$runs"/texts/sst_{train,dev}.txt --text snli "$runs"/texts/snli_{train,dev}.txt
    for task in ner srl sst snli; do
        "$bin/elmo" export "$runs/runs/perplexity-$task-elmo_mini-seed1" "$runs/$task/adapted" --overwrite
    done
}

# With more biLMs than the first two tables of RESULTS.md, so that p is corrected for more comparisons. That page has their commands.
tasks() {
    words="--word-vectors $vectors.txt" cased="--word-vectors ${vectors}_cased.txt"
    "$bin/python" scripts/random_bilm.py elmo_plugin/pretrained/elmo_mini/options.json "$runs/random/weights.hdf5" --seed 0
    on_task vectors ner "1 2 3 4 5" $words --wide-vectors "$vectors"{512,768}.txt \
        --bilms "$runs/random" elmo_mini "$runs/ner/adapted" elmo_small
    on_task vectors srl "1 2 3 4 5" $words --bilms elmo_mini "$runs/srl/adapted" elmo_small
    on_task vectors sst "1 2 3 4 5" $words --bilms elmo_mini "$runs/sst/adapted" elmo_small
    on_task vectors snli "1 2 3 4 5" $words --bilms elmo_mini "$runs/snli/adapted" elmo_small
    on_task vectors coref "1 2 3" $cased --bilms elmo_mini elmo_small
    mkdir -p "$SQUAD_DATA"
    for part in train dev test; do cp "$data/squad/official_dev/$part-v1.1.json" "$SQUAD_DATA/$part.json"; done
    on_task vectors squad "1 2 3" $cased --bilms elmo_mini elmo_small \
        --overrides "{\"test_data_path\": \"$SQUAD_DATA/test.json\", \"evaluate_on_test\": true}"
}

layers() { on_small_tasks layers; }
weights() { report weights "$runs"/runs/*-both-vectors_static?(_cased)-seed[123]/; }
senses() { report wsd "$data"/wsd/*.jsonl --model "$ELMO" --seeds 1 2 3; }
pos() {
    report pos --train "$data/srl/train.gold_conll" --test "$data/srl/test.gold_conll" --model "$ELMO" --seeds 1 2 3 --strengths 0.01 0.1 1 10
}

for step in ${@:-$all_steps}; do
    [[ " $all_steps " == *" $step "* ]] || { echo "No step $step: see the first lines of $0." >&2; exit 2; }
done
for step in ${@:-$all_steps}; do
    case $step in
        static | adapted | tasks) $step ;;
        placement) for_both on_small_tasks placement ;;
        shares) for_both on_small_tasks sample-efficiency ;;
        *) for_both $step ;;
    esac
done
