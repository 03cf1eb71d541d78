// Coreference on OntoNotes (CoNLL-2012) without ELMo: the baseline of coref.jsonnet, which differs in nothing
// else. Expected test score: 67.2 (paper, table 1; Lee et al. 2017); AllenNLP's own: 63.0.
local elmo = import 'lib/elmo.libsonnet';

(import 'coref.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
