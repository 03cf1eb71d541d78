// Question answering on SQuAD 1.1 without ELMo: the baseline of squad.jsonnet, which differs in nothing else.
// Expected F1: 80.8 on dev, 81.1 on the hidden test set (paper, tables 1 and 2).
local elmo = import 'lib/elmo.libsonnet';

(import 'squad.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
