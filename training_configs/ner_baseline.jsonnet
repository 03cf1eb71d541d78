// Named entity recognition on CoNLL-2003 without ELMo: the baseline of ner.jsonnet, which differs in nothing
// else. Expected test F1: 90.15 (paper, table 1); AllenNLP's own: 89.91 +- 0.35 over 5 seeds.
local elmo = import 'lib/elmo.libsonnet';

(import 'ner.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
