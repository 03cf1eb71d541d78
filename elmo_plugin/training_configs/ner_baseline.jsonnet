// Named entity recognition on CoNLL-2003 without ELMo: the baseline of ner.jsonnet. Nothing else differs. Not run
// here. The paper (table 1) reports test F1 90.15. AllenNLP's runs: 89.91 +- 0.35 over 5 seeds.
local elmo = import 'lib/elmo.libsonnet';

(import 'ner.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
