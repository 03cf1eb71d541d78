// Semantic role labelling on OntoNotes (CoNLL-2012) without ELMo: the baseline of srl.jsonnet. Nothing else
// differs. Not run here. The paper (table 1) reports test F1 81.4.
local elmo = import 'lib/elmo.libsonnet';

(import 'srl.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
