// Semantic role labelling on OntoNotes (CoNLL-2012) without ELMo: the baseline of srl.jsonnet, which differs
// in nothing else. Expected test F1: 81.4 (paper, table 1).
local elmo = import 'lib/elmo.libsonnet';

(import 'srl.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
