// Coreference on OntoNotes (CoNLL-2012) without ELMo: the baseline of coref.jsonnet. Nothing else differs. Not run
// here. The paper (table 1) and Lee et al. (2017) report 67.2 on test. AllenNLP's run: 63.0.
local elmo = import 'lib/elmo.libsonnet';

(import 'coref.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
